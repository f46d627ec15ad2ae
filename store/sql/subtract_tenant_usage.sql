-- Subtracts $2 messages with $3 bytes of content from what a tenant has stored. The last statement
-- of a delete, because other transactions that use the same part wait for the row's lock. A part may
-- become negative: only the sum counts.
insert into tenant_usage_part as u (tenant_id, part, messages, content_bytes)
values ($1, pg_backend_pid() % 64, -$2::bigint, -$3::bigint)
on conflict (tenant_id, part) do update set
    messages = u.messages + excluded.messages,
    content_bytes = u.content_bytes + excluded.content_bytes
