-- Locks a conversation ($2) for deletion, if it is still idle and no other transaction uses it. $3:
-- days of conversations of other agents than $4, $5: days of these; 0: never.
select conversation_id as "conversation_id!"
from ai_conversation as c
where tenant_id = $1
  and conversation_id = $2
  and (
      select days > 0 and c.last_activity_ts < now() - days * interval '1 day'
      from (
          select coalesce((
              select kept.days from unnest($4::text[], $5::integer[]) as kept (agent_id, days)
              where kept.agent_id = c.agent_id
          ), $3::integer) as days
      ) as of_agent
  )
for update skip locked
