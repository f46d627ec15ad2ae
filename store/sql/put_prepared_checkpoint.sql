-- Stores a prepared checkpoint. The caller has locked the conversation's row, and has deleted the
-- checkpoint that was prepared before.
insert into ai_prepared_checkpoint (
    tenant_id, conversation_id, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind, model,
    prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
    duration_ms, model_calls, input_tokens, output_tokens
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '', $17, $18, $19, $20)
