-- The next $4 conversations of a tenant after a position, those first that were used longest ago.
-- $2, $3: the position, listed_ts (microseconds since 1970) and id; null: before the first one.
with walked as (
    select coalesce(timestamptz 'epoch' + $2::bigint * interval '1 microsecond', timestamptz '-infinity') as listed_ts,
        coalesce($3, uuid '00000000-0000-0000-0000-000000000000') as conversation_id
)
select conversation_id as "conversation_id!", (extract(epoch from listed_ts) * 1000000)::bigint as "listed_us!"
from ai_conversation
where tenant_id = $1
  and listed_ts >= (select listed_ts from walked)
  and (listed_ts, conversation_id) > (select listed_ts, conversation_id from walked)
order by listed_ts, conversation_id
limit $4
