-- Locks the next conversation of the tenant for deletion: one that no other transaction uses,
-- and none of $2. No row: there is none. It waits for no lock, so the order of locks does not
-- matter.
-- `listed_ts is not null` holds for all: with it, a plan may use the index by tenant (see
-- migrations/0008_places.sql), and reads no other tenant's pages.
select conversation_id, last_message_id
from ai_conversation
where tenant_id = $1
  and listed_ts is not null
  and conversation_id <> all ($2::uuid[])
order by listed_ts desc
limit 1
for update skip locked
