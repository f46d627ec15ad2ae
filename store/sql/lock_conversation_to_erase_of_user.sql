-- Locks the next conversation of the user ($2) for deletion: one that no other transaction uses,
-- and none of $3. No row: there is none. It waits for no lock, so the order of locks does not
-- matter.
-- `listed_ts is not null` holds for all: with it, a plan may use the index by tenant and user (see
-- migrations/0008_places.sql), and reads no other tenant's pages.
select conversation_id, last_message_id
from ai_conversation
where tenant_id = $1
  and user_id = $2
  and listed_ts is not null
  and conversation_id <> all ($3::uuid[])
order by listed_ts desc
limit 1
for update skip locked
