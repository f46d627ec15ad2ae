-- The conversation ($2) that a caller is bound to, without its system prompt, if it is on this page of a list.
-- $3: the user, $4: the agent, $5: the status, $6: the beginning of the title, $7: a text that it
-- contains in upper or lower case, $8: whether it is pinned; null: any. The page starts after the
-- conversation with the last activity $9 (microseconds since 1970) and the id $10; null: with the
-- newest one.
select conversation_id as "conversation_id!", agent_id as "agent_id!", user_id as "user_id!", title as "title!",
    status as "status!", pinned as "pinned!", metadata::text as "metadata!", '' as "system_prompt!",
    policy::text as "policy!", encoding as "encoding!", null::text as "chat_options?", revision as "revision!",
    session_key as "session_key!",
    last_message_id as "last_message_id!", counted_message_id as "counted_message_id!", token_total as "token_total!",
    turn as "turn!", coalesce(withdrawn_messages, 0) as "withdrawn_messages!",
    forked_from_id as "forked_from_id?", forked_message_id as "forked_message_id?",
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from ai_conversation
where tenant_id = $1
  and conversation_id = $2
  and ($3::text is null or user_id = $3)
  and ($4::text is null or agent_id = $4)
  and ($5::smallint is null or status = $5)
  and ($6::text is null or starts_with(title, $6))
  and ($7::text is null or strpos(lower(title), lower($7)) > 0)
  and ($8::boolean is null or pinned = $8)
  and ($9::bigint is null
       or (last_activity_ts, conversation_id) < (timestamptz 'epoch' + $9 * interval '1 microsecond', $10::uuid))
