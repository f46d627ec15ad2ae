-- Stores the summary of a large message as the next change of its conversation, unless the message
-- has a summary already. The caller has locked the conversation's row. Null in $4: no summary would
-- be shorter than the message. Then only summary_ts is set, so that no job tries again.
with changed as (
    update ai_conversation
    set change_id = change_id + 1
    where tenant_id = $1
      and conversation_id = $2
      and $4::text is not null
      and exists (
          select from ai_message
          where tenant_id = $1
            and conversation_id = $2
            and message_id = $3
            and summary_cache is null
      )
    returning change_id
)
update ai_message
set summary_cache = $4, summary_tokens = $5, summary_kind = $6, summary_model = $7, summary_prompt = $8, summary_ts = now(),
    summary_input_tokens = $9, summary_output_tokens = $10, summary_duration_ms = $11,
    summary_change_id = (select change_id from changed)
where tenant_id = $1
  and conversation_id = $2
  and message_id = $3
  and summary_cache is null
