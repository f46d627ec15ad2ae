-- Moves the checkpoints whose range holds a changed message to ai_void_checkpoint. $3, $4: the
-- changed messages, as runs of ids in order. $5: the change. Checkpoints before the first changed
-- message need not be read. Later checkpoints of a chain hold all messages of earlier ones, so none
-- that stays follows one that goes. The caller has locked the conversation's row.
with voided as (
    delete from ai_conversation_checkpoint as k
    where k.tenant_id = $1
      and k.conversation_id = $2
      and k.last_message_id >= ($3::bigint[])[1]
      and exists (
          select from unnest($3::bigint[], $4::bigint[]) as run (first, last)
          where run.first <= k.last_message_id
            and run.last >= k.first_message_id
      )
    returning k.tenant_id, k.conversation_id, k.first_message_id, k.last_message_id, k.previous_message_id, k.summary,
        k.token_usage, k.kind, k.model, k.prompt_version, k.source_first_message_id, k.source_digest, k.tokens_before,
        k.tokens_after, k.generation, k.trigger_kind, k.focus, k.request_id, k.duration_ms, k.model_calls,
        k.input_tokens, k.output_tokens, k.created_ts
)
insert into ai_void_checkpoint (
    tenant_id, conversation_id, void_change_id, first_message_id, last_message_id, previous_message_id, summary,
    token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
    generation, trigger_kind, focus, request_id, duration_ms, model_calls, input_tokens, output_tokens, created_ts
)
select tenant_id, conversation_id, $5, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind,
    model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind,
    focus, request_id, duration_ms, model_calls, input_tokens, output_tokens, created_ts
from voided
returning first_message_id, last_message_id
