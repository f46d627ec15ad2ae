-- Checkpoints of a conversation, newest boundary first, below a place ($3 last, $4 first); $5: only of this request.
select k.first_message_id, k.last_message_id, k.summary, k.token_usage, k.kind, k.model, k.prompt_version,
    k.source_first_message_id, k.source_digest, k.tokens_before, k.tokens_after, k.generation, k.trigger_kind, k.focus,
    k.model_calls, k.input_tokens, k.output_tokens, k.duration_ms,
    (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!",
    k.first_message_id = coalesce(
        (select max(after_message_id) from ai_separator where conversation_id = k.conversation_id), 0
    ) + 1 as "valid!"
from ai_conversation_checkpoint as k
where k.tenant_id = $1
  and k.conversation_id = $2
  and ($3::bigint is null or (k.last_message_id, k.first_message_id) < ($3, $4::bigint))
  and ($5::text is null or k.request_id = $5)
order by k.last_message_id desc, k.first_message_id desc
limit $6
