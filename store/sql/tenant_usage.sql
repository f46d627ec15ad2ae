-- How much a tenant ($1) has stored: the sum of its parts, and of the row to which older versions
-- added. Messages that are not counted yet are not in it.
select coalesce(sum(messages), 0)::bigint as "messages!", coalesce(sum(content_bytes), 0)::bigint as "content_bytes!"
from (
    select messages, content_bytes from tenant_usage_part where tenant_id = $1
    union all
    select messages, content_bytes from tenant_usage where tenant_id = $1
) as part
