-- Withdraws messages ($3): moves their content to ai_message_version, as a part of the change $4.
-- Their rows stay without content: no parts, no tokens, no summary. `token_count` stays not null
-- where it was, because all messages up to counted_message_id are counted. The caller has locked
-- the conversation's row.
--
-- Returns their tokens, and the bytes of those that were not counted. The tenant's usage holds the
-- bytes of counted messages and of all versions, so the caller adds these. "has_user": whether one
-- of the messages is a user's.
with moved as (
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
      and message_id = any ($3)
      and withdrawn_ts is null
    returning message_id, coalesce(token_count, token_estimate) as tokens,
        case when token_count is null then content_bytes end as uncounted_bytes
), emptied as (
    update ai_message as m
    set content = '[]', content_digest = sha256('[]'), content_bytes = 0, text_bytes = 0, token_estimate = 0,
        token_count = case when m.token_count is not null then 0 end, tool_outline = null, metadata = null,
        withdrawn_ts = now(),
        summary_cache = null, summary_tokens = null, summary_kind = null, summary_model = null, summary_prompt = null,
        summary_ts = null, summary_change_id = null, summary_input_tokens = null, summary_output_tokens = null,
        summary_duration_ms = null
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = any ($3)
      and m.withdrawn_ts is null
    returning m.role
)
select (select coalesce(sum(tokens), 0) from moved)::bigint as "tokens!",
    (select coalesce(sum(uncounted_bytes), 0) from moved)::bigint as "uncounted_bytes!",
    (select coalesce(bool_or(role = 1), false) from emptied) as "has_user!"
