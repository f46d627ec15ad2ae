-- Stores the trigger bounds of locked conversations ($1: tenants, $2: conversations) under the
-- settings $8: no trigger is reached up to message $3 (null: no bounds), within $4 tokens in total,
-- and without a message larger than $5. $6: the model on whose window they depend, $7: that window.
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
