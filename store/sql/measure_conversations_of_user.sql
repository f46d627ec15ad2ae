-- The number of conversations of the user ($2), and of their messages.
-- `listed_ts <= 'infinity'`: see has_conversations.sql. A range of users: see
-- lock_conversation_to_erase_of_user.sql.
select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
from ai_conversation
where tenant_id = $1
  and user_id between $2 and $2
  and listed_ts <= 'infinity'
