-- The number of conversations of the tenant, and of their messages.
-- `listed_ts is not null` holds for all: with it, a plan may use the index by tenant (see
-- migrations/0008_places.sql), and reads no other tenant's pages.
select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
from ai_conversation
where tenant_id = $1
  and listed_ts is not null
