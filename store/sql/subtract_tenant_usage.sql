-- Subtracts $2 messages with $3 bytes of content from what the tenant $1 has stored. The last
-- statement of a delete: workers that count messages of several tenants wait for this row's lock.
-- Down to 0, because workers of older versions count messages without adding them.
update tenant_usage
set messages = greatest(messages - $2::bigint, 0), content_bytes = greatest(content_bytes - $3::bigint, 0)
where tenant_id = $1
