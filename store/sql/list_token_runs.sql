-- The tokens of the messages from $3 to $4 in at most $5 runs of nearly equal length, in order,
-- without content. Withdrawn messages count in "withdrawn" only. "largest" is the message with the
-- most tokens: an array compares its elements from the first one on, so -message_id prefers the
-- oldest of several.
select min(message_id) as "first!", max(message_id) as "last!",
    coalesce(sum(tokens) filter (where stands), 0)::bigint as "tokens!",
    max(array[tokens, -message_id]) filter (where stands) as "largest?",
    count(*) filter (where summarized and stands) as "summarized!",
    count(*) filter (where not stands) as "withdrawn!",
    coalesce(bool_or(estimated) filter (where stands), false) as "estimated!"
from (
    select message_id, coalesce(token_count, token_estimate) as tokens, token_count is null as estimated,
        summary_tokens is not null as summarized, withdrawn_ts is null as stands
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id between $3 and $4
) as m
group by (message_id - $3) * $5::bigint / ($4::bigint - $3::bigint + 1)
order by 1
