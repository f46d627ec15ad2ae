-- The recorded beginning of a conversation's contexts ($2) that was in force when message $3 was the
-- newest, without the marks of changes; and the large messages up to then that it sent as their
-- summaries. Only messages that stand, and whose summary is the one of that time, are in the
-- columns "ids" (in ascending order), "original" and "summary" (tokens), which have one entry for
-- each. "swapped" is the number of all that were sent so.
select p.boundary_message_id as "boundary!", p.cut as "cut!",
    (
        select count(*) from unnest(p.swapped_message_ids) as swapped (message_id) where message_id <= $3
    ) as "swapped!",
    known.ids as "ids!", known.original as "original!", known.summary as "summary!"
from (
    select boundary_message_id, swapped_message_ids, cut, created_ts from ai_context_prefix
    where tenant_id = $1
      and conversation_id = $2
      and at_message_id <= $3::bigint
      and change_epoch is distinct from epoch
    order by epoch desc
    limit 1
) as p
cross join lateral (
    select coalesce(array_agg(message_id order by message_id), '{}') as ids,
        coalesce(array_agg(coalesce(token_count, token_estimate) order by message_id), '{}') as original,
        coalesce(array_agg(summary_tokens order by message_id), '{}') as summary
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = any (p.swapped_message_ids)
      and message_id <= $3
      and withdrawn_ts is null
      and summary_tokens is not null
      and summary_ts <= p.created_ts
) as known
