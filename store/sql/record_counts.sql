-- Stores token counts and moves the conversation's counted mark from $6 to $5; its total takes the counts for the estimates.
with counted as (
    update ai_message as m
    set token_count = new.tokens
    from unnest($3::bigint[], $4::bigint[]) as new (message_id, tokens)
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = new.message_id
      and m.token_count is null
    returning new.tokens - m.token_estimate as change
)
update ai_conversation
set counted_message_id = $5,
    token_total = token_total + coalesce((select sum(change) from counted), 0)::bigint
where tenant_id = $1
  and conversation_id = $2
  and counted_message_id = $6
returning last_message_id
