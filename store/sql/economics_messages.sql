-- The newest $3 messages without content, for a replay of what they cost.
select message_id, role, turn, coalesce(token_count, token_estimate) as "tokens!", summary_tokens,
    coalesce(summary_kind = 1, false) as "by_model!", (extract(epoch from created_ts) * 1000000)::bigint as "at_us!"
from ai_message
where tenant_id = $1
  and conversation_id = $2
order by message_id desc
limit $3
