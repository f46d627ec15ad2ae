-- For operators: the $1 tenants of all that have stored the most, and those with the ids $2. Each has
-- up to 64 parts of its figures, as tenant_usage.sql says.
with part as (
    select tenant_id, messages, content_bytes from tenant_usage_part
    union all
    select tenant_id, messages, content_bytes from tenant_usage
),
usage as (
    select tenant_id, sum(messages)::bigint as messages, sum(content_bytes)::bigint as content_bytes
    from part
    group by tenant_id
),
largest as (
    select tenant_id
    from usage
    order by content_bytes desc, tenant_id
    limit $1
)
select t.tenant_id as "tenant_id!", t.name as "name!", coalesce(u.messages, 0) as "messages!",
    coalesce(u.content_bytes, 0) as "content_bytes!"
from tenant as t
left join usage as u on u.tenant_id = t.tenant_id
where t.tenant_id in (select tenant_id from largest)
   or t.tenant_id = any ($2::uuid[])
order by coalesce(u.content_bytes, 0) desc, t.name
limit 200
