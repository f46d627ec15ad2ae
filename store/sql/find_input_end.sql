-- The last message of a response's input, by what is stored: the input follows message $3 without a gap, and each of its appends has
-- the request id $4, or one that begins with $5. At most $6 messages are looked at.
select max(m.message_id + m.request_messages - 1) as last
from ai_message as m
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id > $3::bigint
  and m.message_id <= $3::bigint + $6::bigint
  and (m.request_id = $4 or starts_with(m.request_id, $5))
