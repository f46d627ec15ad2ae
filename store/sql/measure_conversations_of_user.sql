-- The number of conversations of the user ($2), and of their messages.
-- `listed_ts is not null` holds for all: with it, a plan may use the indexes by tenant and user (see
-- migrations/0008_places.sql). A range of users: see lock_conversation_to_erase_of_user.sql.
select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
from ai_conversation
where tenant_id = $1
  and user_id between $2 and $2
  and listed_ts is not null
