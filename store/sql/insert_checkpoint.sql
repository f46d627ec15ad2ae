-- Stores a checkpoint as the next change of its conversation, and clears the trigger bounds
-- (quiet_message_id). A trigger need not wait any longer than for the next message
-- (stalled_message_id). The caller has locked the conversation's row. The primary key refuses a
-- second checkpoint with the same boundary.
with changed as (
    update ai_conversation
    set change_id = change_id + 1, quiet_message_id = null,
        stalled_message_id = least(stalled_message_id, last_message_id)
    where tenant_id = $1
      and conversation_id = $2
    returning change_id
)
insert into ai_conversation_checkpoint (
    tenant_id, conversation_id, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind, model,
    prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
    request_id, duration_ms, model_calls, input_tokens, output_tokens, change_id
)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, changed.change_id
from changed
