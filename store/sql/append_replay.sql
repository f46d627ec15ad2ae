-- The messages that an earlier append with this request id ($3) has stored, in order. Their number
-- and the request's digest are in the row of the first one.
--
-- lateral, and offset 0 as an optimization fence: the first one is found first, by its request id.
-- A plan that was made while the table was small may otherwise read the whole conversation, and look
-- for the first one at each of its messages. `past_last` is a column, because under row-level
-- security an expression could not be an index condition.
select m.message_id, m.turn, m.token_estimate, m.token_count, m.withdrawn_ts is not null as "withdrawn!", c.encoding,
    first.request_digest
from (
    select conversation_id, message_id, message_id + request_messages as past_last, request_digest
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and request_id = $3
    offset 0
) as first
cross join lateral (
    select message_id, turn, token_estimate, token_count, withdrawn_ts
    from ai_message
    where conversation_id = first.conversation_id
      and message_id >= first.message_id
      and message_id < first.past_last
    offset 0
) as m
join ai_conversation as c
  on c.conversation_id = first.conversation_id
order by m.message_id
