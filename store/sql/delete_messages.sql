-- Deletes all messages of a conversation, with the content of withdrawn ones. The caller has locked
-- the conversation's row. Returns how many of the messages were counted, and the bytes of their
-- content and of all withdrawn content: at the end of the transaction, subtract_tenant_usage.sql
-- subtracts both from what the tenant has stored.
with deleted as (
    delete from ai_message
    where tenant_id = $1
      and conversation_id = $2
    returning token_count is not null as is_counted, content_bytes,
        case when content_bytes is null then content end as content
), deleted_versions as (
    delete from ai_message_version
    where tenant_id = $1
      and conversation_id = $2
    returning content_bytes
)
select count(*) as "messages!",
    coalesce(sum(coalesce(content_bytes, octet_length(content::text))), 0)::bigint
        + (select coalesce(sum(content_bytes), 0)::bigint from deleted_versions) as "bytes!"
from deleted
where is_counted
