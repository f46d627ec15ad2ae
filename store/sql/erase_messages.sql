-- Erases the content of messages ($3) and of all their versions. The rows of messages that stood
-- stay without content, as those of withdrawn messages (withdraw_messages.sql). The caller has
-- locked the conversation's row.
--
-- Returns the messages of which content was there, those that stood apart from those that were
-- withdrawn, and the number of deleted versions. "tokens": of those that stood. "bytes": the
-- content that no longer belongs to what the tenant has stored, which is that of counted messages
-- and of all versions. "has_user": whether one of those that stood is a user's.
with standing as materialized (
    select message_id, role, coalesce(token_count, token_estimate) as tokens,
        case when token_count is not null then coalesce(content_bytes, octet_length(content::text)) end as counted_bytes
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = any ($3)
      and withdrawn_ts is null
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
), versions as (
    delete from ai_message_version
    where tenant_id = $1
      and conversation_id = $2
      and message_id = any ($3)
    returning message_id, content_bytes
)
select coalesce((select array_agg(message_id order by message_id) from standing), '{}') as "standing!",
    coalesce((
        select array_agg(distinct message_id) from versions
        where message_id not in (select message_id from standing)
    ), '{}') as "withdrawn!",
    (select count(*) from versions) as "versions!",
    (select coalesce(sum(tokens), 0) from standing)::bigint as "tokens!",
    (select coalesce(sum(counted_bytes), 0) from standing)::bigint
        + (select coalesce(sum(content_bytes), 0) from versions)::bigint as "bytes!",
    (select coalesce(bool_or(role = 1), false) from standing) as "has_user!"
