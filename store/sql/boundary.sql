-- The last separator, and the newest checkpoint that is valid after it.
select s.separator, k.last_message_id as "checkpoint_last?"
from ai_conversation as c
left join lateral (
    select max(after_message_id) as separator from ai_separator
    where conversation_id = c.conversation_id
) as s on true
left join lateral (
    select last_message_id from ai_conversation_checkpoint
    where conversation_id = c.conversation_id
      and first_message_id = coalesce(s.separator, 0) + 1
    order by last_message_id desc
    limit 1
) as k on true
where c.tenant_id = $1
  and c.conversation_id = $2
