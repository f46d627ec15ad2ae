-- The conversations of agent $4 with ids from $2 to $3 that end with the hexadecimal digits $5.
-- Each has the request id of its message $6, if that message stands and a user's append begins with
-- it.
select c.conversation_id, (
        select m.request_id
        from ai_message as m
        where m.tenant_id = c.tenant_id
          and m.conversation_id = c.conversation_id
          and m.message_id = $6
          and m.role = 1
          and m.withdrawn_ts is null
    ) as "request_id?"
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id between $2 and $3
  and c.agent_id = $4
  and right(c.conversation_id::text, 4) = $5
order by c.conversation_id
limit 16
