-- Stores the trigger bounds of locked conversations ($1: tenants, $2: conversations). No trigger is
-- reached while the newest message is before $3, all messages have less than $4 tokens together,
-- and no newly counted message has more than $5 tokens. Null in $3: there are no bounds. $6: the
-- model on whose context window the bounds depend; null: they depend on none. $7: that window, as
-- the model's provider has reported it. $8: the fingerprint of the settings under which the bounds
-- were computed. The trigger bounds are the columns that begin with quiet_: the conversation is
-- quiet, which means that no trigger is reached, while it is within them.
update ai_conversation as c
set quiet_message_id = new.quiet_message_id,
    quiet_token_total = new.quiet_token_total,
    quiet_large_tokens = new.quiet_large_tokens,
    quiet_model = new.quiet_model,
    quiet_window_tokens = new.quiet_window_tokens,
    quiet_rules = $8::bigint
-- (select $1): hides the number of rows from the planner, which then joins by key in a nested loop.
from unnest(
    (select $1::uuid[]), (select $2::uuid[]), (select $3::bigint[]), (select $4::bigint[]), (select $5::bigint[]),
    (select $6::text[]), (select $7::bigint[])
) as new (
    tenant_id, conversation_id, quiet_message_id, quiet_token_total, quiet_large_tokens, quiet_model, quiet_window_tokens
)
where c.tenant_id = new.tenant_id
  and c.conversation_id = new.conversation_id
