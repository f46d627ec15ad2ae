-- Deletes the messages of the conversation $2 of the tenant $1, whose row is locked. Returns how
-- many of them were counted and the bytes of their content: subtract_tenant_usage subtracts both at
-- the end of the transaction.
with deleted as (
    delete from ai_message
    where tenant_id = $1
      and conversation_id = $2
    returning token_count is not null as is_counted, content_bytes,
        case when content_bytes is null then content end as content
)
select count(*) as "messages!",
    coalesce(sum(coalesce(content_bytes, octet_length(content::text))), 0)::bigint as "bytes!"
from deleted
where is_counted
