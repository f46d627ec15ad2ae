-- The pinned conversations among the newest $5 of a tenant, newest activity first, without
-- system prompts; at most $6. $2: the status, $3: the beginning of the title,
-- $4: a text that it contains in upper or lower case; null: any.
-- The index orders conversations by listed_ts, nearly the last activity: which of them are the
-- newest need not be exact. PostgreSQL uses the index only for rows whose listed_ts is not null, and
-- none is.
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
      and listed_ts is not null
    order by listed_ts desc
    limit $5
) as newest
where pinned
  and ($2::smallint is null or status = $2)
  and ($3::text is null or starts_with(title, $3))
  and ($4::text is null or strpos(lower(title), lower($4)) > 0)
order by last_activity_ts desc, conversation_id desc
limit $6
