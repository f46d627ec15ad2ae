-- Deletes all messages of a conversation. The caller has locked the conversation's row. Returns how
-- many of the messages were counted, and the bytes of their content: at the end of the transaction,
-- subtract_tenant_usage.sql subtracts both from what the tenant has stored.
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
