-- One erasure ($2).
select erasure_id, kind, state, request_digest, requested_by,
    (extract(epoch from requested_ts) * 1000000)::bigint as "requested_us!",
    (extract(epoch from ended_ts) * 1000000)::bigint as "ended_us?",
    subject_digest, subject_id, expected_conversations, expected_messages, conversations, messages,
    rows_erased::text as "rows_erased!", ids_digest
from ai_erasure
where tenant_id = $1
  and erasure_id = $2
