-- The next $7 conversations of a tenant after a position, those first that were used longest ago.
-- "days": for how long content that no longer stands is kept, of the agent of the conversation; $3
-- and $4 are agents and their days, $2 are the days of all others, and 0 means that it is kept.
-- "old_versions": how many rows of such content are older, up to $8; null: all are counted.
-- $5, $6: the position, listed_ts (microseconds since 1970) and id; null: before the first one.
-- `is true`: see trim_context_prefixes.sql.
with walked as (
    select coalesce(timestamptz 'epoch' + $5::bigint * interval '1 microsecond', timestamptz '-infinity') as listed_ts,
        coalesce($6, uuid '00000000-0000-0000-0000-000000000000') as conversation_id
)
select page.conversation_id as "conversation_id!", page.agent_id as "agent_id!", page.days as "days!",
    (extract(epoch from page.listed_ts) * 1000000)::bigint as "listed_us!", v.old_versions as "old_versions!"
from (
    select conversation_id, agent_id, listed_ts,
        coalesce((
            select kept.days from unnest($3::text[], $4::integer[]) as kept (agent_id, days)
            where kept.agent_id = c.agent_id
        ), $2::integer) as days
    from ai_conversation as c
    where tenant_id = $1
      and listed_ts >= (select listed_ts from walked)
      and (listed_ts, conversation_id) > (select listed_ts, conversation_id from walked)
    order by listed_ts, conversation_id
    limit $7
) as page
cross join lateral (
    select count(*) as old_versions
    from (
        select from ai_message_version
        where page.days > 0
          and conversation_id = page.conversation_id
          and (tenant_id = $1) is true
          and replaced_ts < now() - page.days * interval '1 day'
        limit $8::bigint
    ) as old
) as v
order by page.listed_ts, page.conversation_id
