-- Extends the leases of the given jobs. A row that does not come back is no longer held.
update ai_job as j
set lease_until_ts = now() + $4::double precision * interval '1 second'
from unnest($1::smallint[], $2::uuid[], $3::uuid[]) as mine (kind, conversation_id, lease)
where j.kind = mine.kind
  and j.conversation_id = mine.conversation_id
  and j.lease = mine.lease
  and j.state = 1
returning j.kind, j.conversation_id
