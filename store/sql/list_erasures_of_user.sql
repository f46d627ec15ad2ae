-- A page of the erasures of a tenant's user, the newest first. $2: the digest of the user's id. $3
-- to $5: as $2 to $4 of list_erasures.sql.
select erasure_id, kind, state, request_digest, requested_by,
    (extract(epoch from requested_ts) * 1000000)::bigint as "requested_us!",
    (extract(epoch from ended_ts) * 1000000)::bigint as "ended_us?",
    subject_digest, subject_id, expected_conversations, expected_messages, conversations, messages,
    rows_erased::text as "rows_erased!", ids_digest
from ai_erasure
where tenant_id = $1
  and subject_digest = $2
  and (requested_ts, erasure_id) < (
      coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', timestamptz 'infinity'),
      coalesce($4, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff')
  )
order by requested_ts desc, erasure_id desc
limit $5
