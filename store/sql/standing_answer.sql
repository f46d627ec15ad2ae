-- The messages that stand after a question ($3) and before the next message of the user that
-- stands, in order, at most $4.
select message_id, role = 2 as "is_assistants!"
from ai_message
where tenant_id = $1
  and conversation_id = $2
  and message_id > $3
  and withdrawn_ts is null
  -- coalesce stands within the subquery: it is not leakproof, so under row-level security an
  -- expression with it cannot be an index condition, and all later messages would be read.
  and message_id < (
      select coalesce(min(message_id), 9223372036854775807) from ai_message
      where tenant_id = $1
        and conversation_id = $2
        and message_id > $3
        and role = 1
        and withdrawn_ts is null
  )
order by message_id
limit $4
