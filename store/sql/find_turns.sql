-- The conversations of agent $4 with ids from $2 to $3 that end with the hexadecimal digits $5.
-- Each has the request id of its message $6, if that message stands and an append of a user's or of
-- a tool's message begins with it; or, if $6 is null, that of the turn that answered a question anew
-- under the number $7.
select c.conversation_id, case
        when $6::bigint is not null then (
            select m.request_id
            from ai_message as m
            where m.tenant_id = c.tenant_id
              and m.conversation_id = c.conversation_id
              and m.message_id = $6
              and m.role in (1, 3)
              and m.withdrawn_ts is null
        )
        else (
            select r.request_id
            from ai_request as r
            where r.tenant_id = c.tenant_id
              and r.conversation_id = c.conversation_id
              and r.method = 'chat_anew_number'
              and r.answer = $7::bigint
            limit 1
        )
    end as "request_id?"
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id between $2 and $3
  and c.agent_id = $4
  and right(c.conversation_id::text, 4) = $5
order by c.conversation_id
limit 16
