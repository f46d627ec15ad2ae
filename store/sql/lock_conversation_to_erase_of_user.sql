-- Locks the next conversation of the user ($2) for deletion: one that no other transaction uses,
-- and none of $3. No row: there is none. It waits for no lock, so the order of locks does not
-- matter. $4: as $3 of lock_conversation_to_erase.sql.
-- The condition on listed_ts is also there when $4 is null, although every conversation then meets
-- it: with it, a plan may use the indexes by tenant and user (see migrations/0008_places.sql).
-- `user_id = $2` would be the same, but the planner could then choose the index by tenant, if its
-- statistics know one user only, and read all conversations of the tenant. That index has neither
-- this range nor this order.
select conversation_id, last_message_id, (extract(epoch from listed_ts) * 1000000)::bigint as "listed_us!"
from ai_conversation
where tenant_id = $1
  and user_id between $2 and $2
  and listed_ts <= (select coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', timestamptz 'infinity'))
  and conversation_id <> all ($3::uuid[])
order by user_id, listed_ts desc
limit 1
for update skip locked
