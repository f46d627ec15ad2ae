-- Copies the content and the labels of a message ($3) that stands to ai_message_version, as a part
-- of the change $4, which replaces them. The caller has locked the conversation's row, and has seen
-- that the message stands.
insert into ai_message_version (
    tenant_id, conversation_id, message_id, version, change_id, token_estimate, token_count, text_bytes, content_bytes,
    content, content_digest, tool_outline, metadata, created_ts
)
select tenant_id, conversation_id, message_id, coalesce(version, 1), $4, token_estimate, token_count, text_bytes,
    coalesce(content_bytes, octet_length(content::text)), content, content_digest, tool_outline, metadata,
    coalesce(edited_ts, created_ts)
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and message_id = $3
  and withdrawn_ts is null
returning coalesce(token_count, token_estimate) as "tokens!", token_count is not null as "is_counted!",
    content_bytes::bigint as "content_bytes!"
