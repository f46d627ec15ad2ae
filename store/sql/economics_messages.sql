-- The newest $3 messages of a conversation that stand, without content, to compute its past calls
-- and their cost. "read" and "written" are the tokens that models read and wrote to make the
-- message's summary.
select message_id, role, turn, coalesce(token_count, token_estimate) as "tokens!", summary_tokens,
    coalesce(summary_input_tokens, 0) as "read!",
    coalesce(summary_output_tokens, 0) as "written!", (extract(epoch from created_ts) * 1000000)::bigint as "at_us!"
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and withdrawn_ts is null
order by message_id desc
limit $3
