-- How much a tenant ($1) has stored. The figure is kept in up to 64 parts (tenant_usage_part), so
-- that appends of one tenant do not wait for each other at one row. tenant_usage has what older
-- versions added. Messages that are not counted yet are in neither.
select coalesce(sum(messages), 0)::bigint as "messages!", coalesce(sum(content_bytes), 0)::bigint as "content_bytes!"
from (
    select messages, content_bytes from tenant_usage_part where tenant_id = $1
    union all
    select messages, content_bytes from tenant_usage where tenant_id = $1
) as part
