-- The stops of turns: one row for each of these leases ($3) that was told to stop. $1, $2: their
-- tenants and conversations, in the same order.
select l.lease as "lease!", l.stop as "stop!"
from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as running (tenant_id, conversation_id, lease)
join ai_model_lease as l
  on l.tenant_id = running.tenant_id
 and l.conversation_id = running.conversation_id
 and l.lease = running.lease
where l.stop is not null
