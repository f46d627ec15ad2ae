-- Extends the leases of the given jobs. A row that does not come back is no longer held. Locked in the order in which
-- transactions of many results lock them.
with held as materialized (
    select j.kind, j.conversation_id
    -- (select $1): how many there are is hidden from the planner, which then joins by key, row by row
    from unnest((select $1::smallint[]), (select $2::uuid[]), (select $3::uuid[])) as mine (kind, conversation_id, lease)
    join ai_job as j
      on j.kind = mine.kind
     and j.conversation_id = mine.conversation_id
     and j.lease = mine.lease
     and j.state = 1
    order by j.kind, j.conversation_id
    for update of j
)
update ai_job as j
set lease_until_ts = now() + $4::double precision * interval '1 second'
from held
where j.kind = held.kind
  and j.conversation_id = held.conversation_id
returning j.kind, j.conversation_id
