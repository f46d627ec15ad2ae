-- Locks the next conversation of the tenant ($1) for deletion: one that no other transaction uses,
-- and none of $2. No row: there is none. It waits for no lock, so the order of locks does not
-- matter. $3: the listed_ts of the conversation that the step has locked before (microseconds since
-- 1970); null: it has locked none. The index is read from there, because the entries of deleted
-- conversations stay as long as another transaction might see these conversations. A subquery
-- computes the time: with row-level security, an index takes no condition that calls coalesce.
-- The condition on listed_ts is also there when $3 is null, although every conversation then meets
-- it: with it, a plan may use the index by tenant (see migrations/0008_places.sql), and reads no
-- other tenant's pages.
select conversation_id, last_message_id, (extract(epoch from listed_ts) * 1000000)::bigint as "listed_us!"
from ai_conversation
where tenant_id = $1
  and listed_ts <= (select coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', timestamptz 'infinity'))
  and conversation_id <> all ($2::uuid[])
order by listed_ts desc
limit 1
for update skip locked
