-- The messages that stand after a question ($3) and before the next message of the user that
-- stands, in order, at most $4. "begins_answer": whether an answer begins with the message: it is
-- the assistant's, and a turn has stored it, or an alternative of the question begins with it. The
-- request ids of answers of turns are longer than $5 bytes, and all others are not.
select message_id, role = 2 as "is_assistants!",
    role = 2 and (
        coalesce(octet_length(request_id) > $5::integer, false)
        or message_id = any (array(
            select first_ids[1] from ai_alternative
            where tenant_id = $1
              and conversation_id = $2
              and question_id = $3
        ))
    ) as "begins_answer!"
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
