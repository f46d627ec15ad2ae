-- Locks conversations ($1: tenants, $2: conversations) in the order of their ids, without waiting.
-- A conversation that another transaction holds, or that is deleted, has no row in the result. The
-- quiet_ columns are the trigger bounds. "bounds_are_current" says whether these were computed
-- under the present settings ($3: their fingerprint) and the present context window of the model.
select locked.conversation_id as "conversation_id!", locked.counted_message_id as "counted_message_id!",
    locked.last_message_id as "last_message_id!", locked.token_total as "token_total!",
    locked.quiet_message_id, locked.quiet_token_total, locked.quiet_large_tokens,
    locked.quiet_message_id is not null and locked.quiet_rules = $3::bigint
        and w.window_tokens is not distinct from locked.quiet_window_tokens as "bounds_are_current!"
from (
    select tenant_id, conversation_id
    from unnest((select $1::uuid[]), (select $2::uuid[])) as unsorted (tenant_id, conversation_id)
    order by conversation_id
) as asked
cross join lateral (
    -- limit 1: forces a nested loop by key, which locks the rows in this order.
    select conversation_id, counted_message_id, last_message_id, token_total, quiet_message_id, quiet_token_total,
        quiet_large_tokens, quiet_model, quiet_window_tokens, quiet_rules
    from ai_conversation
    where tenant_id = asked.tenant_id
      and conversation_id = asked.conversation_id
    limit 1
    for no key update skip locked
) as locked
left join lateral (
    -- limit 1: forces a lookup by key.
    select window_tokens from ai_model
    where tenant_id = asked.tenant_id
      and model = locked.quiet_model
    limit 1
) as w on true
