-- The next $10 rows of content that no longer stands, of a tenant, after a position, the oldest
-- first. Only those are walked through that are older than $5 days, the least of all days. "days":
-- the days of the conversation's agent; $3 and $4 are agents and their days, $2 are the days of all
-- others, and 0 means that the content is kept. "is_old": whether these days are over.
-- $6 to $9: the position: replaced_ts (microseconds since 1970) and key; null: before the first one.
select page.conversation_id as "conversation_id!", page.message_id as "message_id!", page.version as "version!",
    (extract(epoch from page.replaced_ts) * 1000000)::bigint as "replaced_us!",
    c.agent_id as "agent_id!", c.days as "days!",
    (c.days > 0 and page.replaced_ts < now() - c.days * interval '1 day') is true as "is_old!"
from (
    select conversation_id, message_id, version, replaced_ts
    from ai_message_version
    where tenant_id = $1
      and replaced_ts < now() - $5::integer * interval '1 day'
      and replaced_ts >= coalesce(timestamptz 'epoch' + $6::bigint * interval '1 microsecond', timestamptz '-infinity')
      and (replaced_ts, conversation_id, message_id, version) > (
          coalesce(timestamptz 'epoch' + $6 * interval '1 microsecond', timestamptz '-infinity'),
          coalesce($7, uuid '00000000-0000-0000-0000-000000000000'),
          coalesce($8::bigint, 0),
          coalesce($9::integer, 0)
      )
    order by replaced_ts, conversation_id, message_id, version
    limit $10
) as page
cross join lateral (
    -- limit 1: forces a lookup by key.
    select agent_id,
        coalesce((
            select kept.days from unnest($3::text[], $4::integer[]) as kept (agent_id, days)
            where kept.agent_id = of_page.agent_id
        ), $2::integer) as days
    from ai_conversation as of_page
    where tenant_id = $1
      and conversation_id = page.conversation_id
    limit 1
) as c
order by page.replaced_ts, page.conversation_id, page.message_id, page.version
