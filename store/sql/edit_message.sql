-- Gives a message ($3) that stands new content as its next version, after store_version.sql. The
-- message's summary goes. `token_count` stays null where it was: then $7, the tokens of the new
-- content, is the estimate until a worker counts. $10: whether the labels stay; otherwise $9
-- replaces them. The caller has locked the conversation's row.
update ai_message as m
set content = $4::text::json, content_digest = $5, content_bytes = octet_length($4), text_bytes = $6,
    token_estimate = $7::bigint, token_count = case when m.token_count is not null then $7 end,
    tool_outline = $8::text::json, metadata = case when $10::boolean then m.metadata else $9::text::jsonb end,
    version = coalesce(m.version, 1) + 1, edited_ts = now(),
    summary_cache = null, summary_tokens = null, summary_kind = null, summary_model = null, summary_prompt = null,
    summary_ts = null, summary_change_id = null, summary_input_tokens = null, summary_output_tokens = null,
    summary_duration_ms = null
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
  and m.withdrawn_ts is null
