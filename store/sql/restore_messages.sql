-- Makes withdrawn messages ($3) stand again: moves their content back from ai_message_version. $4:
-- the conversation's counted_message_id. $5, $6: messages and their token counts. A message up to
-- $4 whose content was withdrawn before it was counted gets its count from $6. The caller has
-- locked the conversation's row.
--
-- Returns the tokens of the restored messages, and the bytes of those that are not counted. The
-- tenant's usage holds the bytes of counted messages and of all versions, so the caller subtracts
-- these. "lacks_count": whether a message up to $4 has no count; then the caller rolls back.
-- "has_user": whether one of the messages is a user's.
-- "restored": the messages, without those whose content retention has erased meanwhile.
with back as (
    delete from ai_message_version as v
    using ai_message as m
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = any ($3)
      and m.withdrawn_ts is not null
      and v.tenant_id = $1
      and v.conversation_id = $2
      and v.message_id = m.message_id
      and v.version = coalesce(m.version, 1)
    returning v.message_id, v.token_estimate, v.token_count, v.text_bytes, v.content_bytes, v.content, v.content_digest,
        v.tool_outline, v.metadata
), stored as (
    update ai_message as m
    set content = b.content, content_digest = b.content_digest, content_bytes = b.content_bytes, text_bytes = b.text_bytes,
        token_estimate = b.token_estimate,
        token_count = case when m.message_id <= $4::bigint then coalesce(b.token_count, new.tokens) end,
        tool_outline = b.tool_outline, metadata = b.metadata, withdrawn_ts = null
    from back as b
    left join unnest($5::bigint[], $6::bigint[]) as new (message_id, tokens) on new.message_id = b.message_id
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = b.message_id
      and m.message_id = any ($3)
    returning m.message_id, m.role, coalesce(m.token_count, m.token_estimate) as tokens,
        m.token_count is null and m.message_id <= $4 as lacks_count,
        case when m.message_id > $4 then m.content_bytes end as uncounted_bytes
)
select coalesce(sum(tokens), 0)::bigint as "tokens!", coalesce(sum(uncounted_bytes), 0)::bigint as "uncounted_bytes!",
    coalesce(bool_or(lacks_count), false) as "lacks_count!", coalesce(bool_or(role = 1), false) as "has_user!",
    coalesce(array_agg(message_id order by message_id), '{}') as "restored!"
from stored
