-- The tool calls and results of the messages with ids in the runs from $3 to $4 that stand ($5
-- false) or are withdrawn ($5 true), without messages that have none, in order.
select m.message_id as "message_id!", m.outline as "outline!"
from unnest((select $3::bigint[]), (select $4::bigint[])) as run (first, last)
cross join lateral (
    select message_id,
        case
            when $5::boolean then (
                select v.tool_outline::text from ai_message_version as v
                where v.tenant_id = $1
                  and v.conversation_id = $2
                  and v.message_id = ai_message.message_id
                  and v.version = coalesce(ai_message.version, 1)
            )
            else tool_outline::text
        end as outline
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id between run.first and run.last
      and (withdrawn_ts is not null) = $5
    order by message_id
) as m
where m.outline is not null
order by m.message_id
