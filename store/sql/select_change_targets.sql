-- The messages that a change concerns, in order, at most $6: those with ids in the runs from $3 to
-- $4 that stand ($5 false) or are withdrawn ($5 true). "has_tools" says whether the message has
-- tool calls or results. Null: it is withdrawn, and its content was erased.
select m.message_id as "message_id!", m.has_tools as "has_tools?"
from unnest((select $3::bigint[]), (select $4::bigint[])) as run (first, last)
cross join lateral (
    select message_id,
        case
            when $5::boolean then (
                select v.tool_outline is not null from ai_message_version as v
                where v.tenant_id = $1
                  and v.conversation_id = $2
                  and v.message_id = ai_message.message_id
                  and v.version = coalesce(ai_message.version, 1)
            )
            else tool_outline is not null
        end as has_tools
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id between run.first and run.last
      and (withdrawn_ts is not null) = $5
    order by message_id
    limit $6
) as m
order by m.message_id
limit $6
