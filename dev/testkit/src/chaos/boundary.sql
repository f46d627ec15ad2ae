-- The message after which a context of a conversation ($1) starts: the last message before the
-- newest separator, or the last message of the newest checkpoint after this separator. 0 if there
-- is neither.
select greatest(s.after, coalesce(max(k.last_message_id), 0))
from (
    select coalesce(max(after_message_id), 0) as after from ai_separator
    where conversation_id = $1
) as s
left join ai_conversation_checkpoint as k
  on k.conversation_id = $1
 and k.first_message_id = s.after + 1
group by s.after
