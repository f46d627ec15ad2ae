-- The listed_ts (microseconds since 1970) of number 10,000 of the conversations of a tenant's agent, in the
-- order of the index, after the conversation with the last activity $3 (microseconds since 1970) and the
-- id $4; null: from the newest one. A list of those that were active then or later reads these
-- conversations, and some within the lag of listed_ts. The offset is a constant, so that plans know it.
with page_start as (
    select coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', timestamptz 'infinity') as activity,
        coalesce($4, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff') as conversation_id
)
select (extract(epoch from listed_ts) * 1000000)::bigint as "listed_us!"
from ai_conversation
where tenant_id = $1
  and agent_id = $2
  and listed_ts <= (select activity from page_start)
  and (last_activity_ts, conversation_id) < (select activity, conversation_id from page_start)
order by listed_ts desc
offset 9999
limit 1
