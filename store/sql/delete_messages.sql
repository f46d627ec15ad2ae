-- Deletes the messages of the conversation $2 of the tenant $1, which is locked; they are no part of what the tenant has stored
-- any more.
with deleted as (
    delete from ai_message
    where tenant_id = $1
      and conversation_id = $2
    returning token_count is not null as is_counted, content_bytes, case when content_bytes is null then content end as content
), freed as (
    select count(*) as messages, coalesce(sum(coalesce(content_bytes, octet_length(content::text))), 0)::bigint as bytes
    from deleted
    where is_counted
)
update tenant_usage as u
set messages = u.messages - freed.messages, content_bytes = u.content_bytes - freed.bytes
from freed
where u.tenant_id = $1
  and freed.messages > 0
