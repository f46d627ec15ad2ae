-- Stores a usage report, unless a report with this request id ($3) is stored already, or if there is
-- no such conversation. The lock keeps the conversation from being deleted meanwhile, which would
-- leave the report behind.
insert into ai_model_call (
    tenant_id, conversation_id, request_id, request_digest, model, context_tokens, input_tokens, cached_tokens,
    written_tokens, output_tokens, cache_state, stop_reason, expected_tokens, break_reason, long_written_tokens, ping
)
select c.tenant_id, c.conversation_id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id = $2
for key share
on conflict (conversation_id, request_id) do nothing
