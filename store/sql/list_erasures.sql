-- A page of a tenant's erasures, the newest first. The page starts after the erasure that was asked
-- for at $2 (microseconds since 1970) and has the id $3; null: with the newest one. It has at most
-- $4 entries.
select erasure_id, kind, state, request_digest, requested_by,
    (extract(epoch from requested_ts) * 1000000)::bigint as "requested_us!",
    (extract(epoch from ended_ts) * 1000000)::bigint as "ended_us?",
    subject_digest, subject_id, expected_conversations, expected_messages, conversations, messages,
    rows_erased::text as "rows_erased!", ids_digest
from ai_erasure
where tenant_id = $1
  and (requested_ts, erasure_id) < (
      coalesce(timestamptz 'epoch' + $2::bigint * interval '1 microsecond', timestamptz 'infinity'),
      coalesce($3, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff')
  )
order by requested_ts desc, erasure_id desc
limit $4
