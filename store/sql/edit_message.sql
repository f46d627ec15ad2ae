-- Gives a message ($3) that stands new content as its next version: moves the present content to
-- ai_message_version, as a part of the change $4. The message's summary goes. `token_count` stays
-- null where it was: then $8, the tokens of the new content, is the estimate until a worker counts.
-- $11: whether the labels stay; otherwise $10 replaces them. The caller has locked the
-- conversation's row, and has seen that the message stands.
--
-- Returns the new version, by how much the message's tokens change, and by how many bytes what the
-- tenant has stored grows: counting adds the new content of a message that is not counted yet, so
-- only its old content is added here.
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
      and message_id = $3
      and withdrawn_ts is null
    returning coalesce(token_count, token_estimate) as tokens, content_bytes
), edited as (
    update ai_message as m
    set content = $5::text::json, content_digest = $6, content_bytes = octet_length($5), text_bytes = $7,
        token_estimate = $8::bigint, token_count = case when m.token_count is not null then $8 end,
        tool_outline = $9::text::json, metadata = case when $11::boolean then m.metadata else $10::text::jsonb end,
        version = coalesce(m.version, 1) + 1, edited_ts = now(),
        summary_cache = null, summary_tokens = null, summary_kind = null, summary_model = null, summary_prompt = null,
        summary_ts = null, summary_change_id = null, summary_input_tokens = null, summary_output_tokens = null,
        summary_duration_ms = null
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = $3
      and m.withdrawn_ts is null
    returning m.version, m.token_count is not null as is_counted, m.content_bytes
)
select e.version as "version!", $8 - m.tokens as "token_change!",
    (case when e.is_counted then e.content_bytes else m.content_bytes end)::bigint as "added_bytes!"
from moved as m
cross join edited as e
