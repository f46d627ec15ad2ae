-- Stores the summary of a large message, unless it has one; null: no summary would be shorter.
update ai_message
set summary_cache = $4, summary_tokens = $5, summary_kind = $6, summary_model = $7, summary_prompt = $8, summary_ts = now(),
    summary_input_tokens = $9, summary_output_tokens = $10, summary_duration_ms = $11
where tenant_id = $1
  and conversation_id = $2
  and message_id = $3
  and summary_cache is null
