-- The last message of the question that a message ($3) is, or belongs to the answer of; null if
-- there is none. A question that has alternatives, and the messages of alternatives, are known by
-- ai_alternative. Another message that stands belongs to the question before it. A question ends
-- before the next message that stands and is not the user's.
select coalesce(
    (
        select question_id from ai_alternative
        where tenant_id = $1
          and conversation_id = $2
          and question_id = $3
        limit 1
    ),
    (
        select a.question_id from ai_alternative as a
        where a.tenant_id = $1
          and a.conversation_id = $2
          and exists (
              select from unnest(a.first_ids, a.last_ids) as run (first, last)
              where $3 between run.first and run.last
          )
        order by a.change_id desc
        limit 1
    ),
    case
        when m.withdrawn_ts is not null then null
        when m.role = 1 then (
            select max(message_id) from ai_message
            where tenant_id = $1
              and conversation_id = $2
              and role = 1
              and withdrawn_ts is null
              and message_id >= $3
              and message_id < (
                  select coalesce(min(message_id), 9223372036854775807) from ai_message
                  where tenant_id = $1
                    and conversation_id = $2
                    and message_id > $3
                    and role <> 1
                    and withdrawn_ts is null
              )
        )
        else (
            select max(message_id) from ai_message
            where tenant_id = $1
              and conversation_id = $2
              and role = 1
              and withdrawn_ts is null
              and message_id < $3
        )
    end
) as "question?"
from ai_message as m
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
