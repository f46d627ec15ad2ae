-- The messages that an earlier append with this request id ($3) has stored, in order. Their number
-- and the request's digest are in the row of the first one.
select m.message_id, m.turn, m.token_estimate, m.token_count, m.withdrawn_ts is not null as "withdrawn!", c.encoding,
    first.request_digest
from ai_message as first
join ai_message as m
  on m.conversation_id = first.conversation_id
 and m.message_id >= first.message_id
 and m.message_id < first.message_id + first.request_messages
join ai_conversation as c
  on c.conversation_id = first.conversation_id
where first.tenant_id = $1
  and first.conversation_id = $2
  and first.request_id = $3
order by m.message_id
