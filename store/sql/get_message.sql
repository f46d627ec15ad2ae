-- One message, whole.
select m.message_id as "message_id!", m.role as "role!", m.turn as "turn!",
    coalesce(m.token_count, m.token_estimate) as "tokens!", m.token_count is null as "estimated!",
    m.text_bytes as "text_bytes!", m.content::text as "content?", m.metadata::text as "metadata?",
    m.summary_cache as "summary?", m.summary_tokens as "summary_tokens?", m.summary_kind as "summary_kind?",
    m.summary_model as "summary_model?", (extract(epoch from m.summary_ts) * 1000000)::bigint as "summary_us?",
    (extract(epoch from m.created_ts) * 1000000)::bigint as "created_us!"
from ai_message as m
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
