-- The oldest and the newest message of a conversation that stand (0: none does), and the newest one
-- of all. Only a conversation in which a message was ever withdrawn needs to look for them.
select last_message_id,
    case
        when withdrawn_messages > 0 then coalesce((
            select message_id from ai_message
            where tenant_id = $1
              and conversation_id = $2
              and withdrawn_ts is null
            order by message_id
            limit 1
        ), 0)
        else 1
    end as "first_standing!",
    case
        when withdrawn_messages > 0 then coalesce((
            select message_id from ai_message
            where tenant_id = $1
              and conversation_id = $2
              and withdrawn_ts is null
            order by message_id desc
            limit 1
        ), 0)
        else last_message_id
    end as "last_standing!"
from ai_conversation
where tenant_id = $1
  and conversation_id = $2
