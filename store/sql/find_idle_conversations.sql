-- The next $8 conversations of a tenant after a position, those first that were used longest ago.
-- Only those are walked through that may have been idle for $5 days, the least of all days.
-- "is_idle": whether a conversation has no message newer than the days of its agent: $3 and $4 are
-- agents and their days, $2 are the days of all others, and 0 means never.
-- $6, $7: the position, listed_ts (microseconds since 1970) and id; null: before the first one.
-- listed_ts, which the index is ordered by, is never after the last activity.
with walked as (
    select coalesce(timestamptz 'epoch' + $6::bigint * interval '1 microsecond', timestamptz '-infinity') as listed_ts,
        coalesce($7, uuid '00000000-0000-0000-0000-000000000000') as conversation_id
)
select conversation_id as "conversation_id!", agent_id as "agent_id!", last_message_id as "last_message_id!",
    (extract(epoch from listed_ts) * 1000000)::bigint as "listed_us!",
    (days > 0 and last_activity_ts < now() - days * interval '1 day') is true as "is_idle!"
from (
    select conversation_id, agent_id, last_message_id, listed_ts, last_activity_ts,
        coalesce((
            select kept.days from unnest($3::text[], $4::integer[]) as kept (agent_id, days)
            where kept.agent_id = c.agent_id
        ), $2::integer) as days
    from ai_conversation as c
    where tenant_id = $1
      and listed_ts < now() - $5::integer * interval '1 day'
      and listed_ts >= (select listed_ts from walked)
      and (listed_ts, conversation_id) > (select listed_ts, conversation_id from walked)
    order by listed_ts, conversation_id
    limit $8
) as page
order by listed_ts, conversation_id
