-- A question whose last message is $3, newest message first, at most $4: that message in whatever
-- state, and before it the messages of the user that stand with no other message and no separator
-- between them.
select m.message_id, m.turn, coalesce(m.token_count, m.token_estimate) as "tokens!", m.token_count is not null as "is_counted!",
    m.withdrawn_ts is not null as "is_withdrawn!"
from ai_message as m
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id <= $3
  and m.message_id > (
      select coalesce(
          greatest(
              (
                  select max(message_id) from ai_message
                  where tenant_id = $1
                    and conversation_id = $2
                    and message_id < $3
                    and role <> 1
                    and withdrawn_ts is null
              ),
              (
                  select max(after_message_id) from ai_separator
                  where tenant_id = $1
                    and conversation_id = $2
                    and after_message_id < $3
              )
          ),
          0
      )
  )
  and (m.message_id = $3 or m.withdrawn_ts is null)
order by m.message_id desc
limit $4
