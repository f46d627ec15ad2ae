-- A page of a tenant's conversations whose titles contain the text $8 in upper or lower
-- case, newest activity first, without system prompts. $2: the status, $3: the beginning of the
-- title; null: any. The page starts after the conversation with the last activity $4 (microseconds
-- since 1970) and the id $5; null: with the newest one. It has at most $6 entries, all of which
-- were last active at $9 or later; null: at any time. Their listed_ts is at most $7 seconds
-- before that. So each plan reads this range of the index, which find_title_scan_end has made short.
with looked_at as (
    select coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', timestamptz 'infinity') as activity,
        coalesce($5, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff') as conversation_id,
        coalesce(timestamptz 'epoch' + $9::bigint * interval '1 microsecond', timestamptz '-infinity') as oldest_activity
), oldest_listed as (
    select oldest_activity - $7::integer * interval '1 second' as listed_ts from looked_at
)
select conversation_id as "conversation_id!", agent_id as "agent_id!", user_id as "user_id!", title as "title!",
    status as "status!", pinned as "pinned!", metadata::text as "metadata!", '' as "system_prompt!",
    policy::text as "policy!", encoding as "encoding!", null::text as "chat_options?", revision as "revision!",
    session_key as "session_key!",
    last_message_id as "last_message_id!", counted_message_id as "counted_message_id!", token_total as "token_total!",
    turn as "turn!", coalesce(withdrawn_messages, 0) as "withdrawn_messages!",
    forked_from_id as "forked_from_id?", forked_message_id as "forked_message_id?",
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from (
    select conversation_id, agent_id, user_id, title, status, pinned, metadata, policy, encoding, revision, session_key,
        last_message_id, counted_message_id, token_total, turn, withdrawn_messages, forked_from_id, forked_message_id, created_ts,
        last_activity_ts
    from ai_conversation
    where tenant_id = $1
      and listed_ts <= (select activity from looked_at)
      and listed_ts >= (select listed_ts from oldest_listed)
      and (last_activity_ts, conversation_id) < (select activity, conversation_id from looked_at)
      and last_activity_ts >= (select oldest_activity from looked_at)
      and ($2::smallint is null or status = $2)
      and ($3::text is null or starts_with(title, $3))
      and strpos(lower(title), lower($8)) > 0
    order by last_activity_ts desc, conversation_id desc
    limit $6
) as page
order by last_activity_ts desc, conversation_id desc
