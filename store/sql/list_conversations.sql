-- A page of a tenant's conversations, newest activity first, without system prompts.
-- $2: the status, $3: the beginning of the title; null: any. The page starts after the conversation
-- with the last activity $4 (microseconds since 1970) and the id $5; null: with the newest one. It
-- has at most $6 entries.
-- The index orders conversations by listed_ts, which is last_activity_ts or up to $7 seconds before
-- it. `page_end` is the listed_ts of conversation number $6 in the order of the index. The
-- conversations up to that one would fill the page, and were active at `page_end` or later, because
-- listed_ts is never after the activity. So no entry of the page, which is in the order of
-- activity, was last active before `page_end`. Each entry's listed_ts is at most $7 seconds before
-- its activity: not before `oldest_listed`. The limit 501 (the largest page and one more row) is a
-- constant, so that every plan walks the index. The subquery finds the rows of the page. Only these
-- are converted for the answer.
with page_start as (
    select coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', timestamptz 'infinity') as activity,
        coalesce($5, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff') as conversation_id
), page_end as (
    select listed_ts
    from (
        select listed_ts
        from ai_conversation
        where tenant_id = $1
          and listed_ts <= (select activity from page_start)
          and (last_activity_ts, conversation_id) < (select activity, conversation_id from page_start)
          and ($2::smallint is null or status = $2)
          and ($3::text is null or starts_with(title, $3))
        order by listed_ts desc
        limit 501
    ) as in_index_order
    order by listed_ts desc
    offset $6::bigint - 1
    limit 1
), oldest_listed as (
    select coalesce((select listed_ts from page_end), timestamptz '-infinity') - $7::integer * interval '1 second' as listed_ts
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
      and listed_ts <= (select activity from page_start)
      and listed_ts >= (select listed_ts from oldest_listed)
      and (last_activity_ts, conversation_id) < (select activity, conversation_id from page_start)
      and ($2::smallint is null or status = $2)
      and ($3::text is null or starts_with(title, $3))
    order by last_activity_ts desc, conversation_id desc
    limit $6
) as page
order by last_activity_ts desc, conversation_id desc
