-- Large messages of the tail that stand and lack a summary, oldest first, at most $5. $3: the
-- server's settings by profile. $4: whether only messages are read that are cool, or will be within
-- one turn or two model calls. `head` is materialized: under row-level security, values that are
-- computed in the same query cannot be index conditions.
with head as materialized (
    select c.conversation_id, c.turn, b.boundary,
        (e.keys ->> 'large_message_threshold')::bigint as large_threshold, (e.keys ->> 'hot_zone_radius')::bigint as radius,
        case when e.keys ->> 'cooling' = 'stepped' then nullif((e.keys ->> 'hot_zone_calls')::bigint, 0) end as hot_calls
    from ai_conversation as c
    cross join lateral (
        select ($3::text::jsonb -> coalesce(c.policy ->> 'profile', '')) || c.policy as keys
    ) as e
    cross join lateral context_boundary(c.conversation_id) as b
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select m.message_id
from head as h
cross join lateral (
    select message_id, turn, token_count, summary_ts, count(*) filter (where role = 2) over later as calls_after
    from ai_message
    where tenant_id = $1
      and conversation_id = h.conversation_id
      and message_id > h.boundary
      and withdrawn_ts is null
    window later as (order by message_id desc rows between unbounded preceding and 1 preceding)
) as m
where m.token_count > h.large_threshold
  and m.summary_ts is null
  and (not $4::boolean or h.turn - m.turn >= h.radius or m.calls_after > h.hot_calls - 2)
order by m.message_id
limit $5
