-- Deletes all messages of a conversation, with the content of withdrawn ones. The caller has locked
-- the conversation's row. Returns how many of the messages were counted, and the bytes of their
-- content and of all withdrawn content: at the end of the transaction, subtract_tenant_usage.sql
-- subtracts both from what the tenant has stored. Also returns the number of all deleted rows, and
-- the bytes of all deleted content.
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
), versions as materialized (
    select count(*) as number, coalesce(sum(content_bytes), 0)::bigint as bytes from deleted_versions
), messages as materialized (
    select count(*) as number, count(*) filter (where is_counted) as counted,
        coalesce(sum(bytes), 0)::bigint as bytes,
        coalesce(sum(bytes) filter (where is_counted), 0)::bigint as counted_bytes
    from (select is_counted, coalesce(content_bytes, octet_length(content::text)) as bytes from deleted) as measured
)
select messages.counted as "counted!", messages.counted_bytes + versions.bytes as "counted_bytes!",
    messages.number as "messages!", versions.number as "versions!", messages.bytes + versions.bytes as "bytes!"
from messages, versions
