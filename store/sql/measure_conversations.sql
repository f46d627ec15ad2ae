-- The number of conversations of the tenant, and of their messages.
-- `listed_ts <= 'infinity'`: see has_conversations.sql.
select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
from ai_conversation
where tenant_id = $1
  and listed_ts <= 'infinity'
