-- Subtracts $2 messages with $3 bytes of content from what a tenant has stored. The last statement
-- of a delete, because workers that count messages of this tenant wait for the row's lock. Does not
-- go below 0: workers of older versions count messages without adding them here.
update tenant_usage
set messages = greatest(messages - $2::bigint, 0), content_bytes = greatest(content_bytes - $3::bigint, 0)
where tenant_id = $1
