-- How a turn has ended: the message that holds its answer, which has this request id ($3), if it
-- stands; else a row without a message, if the turn was stopped and nothing of the answer is kept
-- (method $4). No row: neither.
select message_id as "message_id?", stopped as "stopped!"
from (
    select message_id, coalesce(stopped, false) as stopped
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and request_id = $3
      and withdrawn_ts is null
    union all
    select null, true
    from ai_request
    where tenant_id = $1
      and conversation_id = $2
      and request_id = $3
      and method = $4
) as ended
order by message_id nulls last
limit 1
