-- A page of the forks of a conversation ($2), newest first, without system prompts. The page starts
-- after the fork that was created at $3 (microseconds since 1970) with the id $4; null: with the
-- newest one. It has at most $5 entries. A conversation that does not exist any more may have forks.
-- limit 1: forces a lookup by key. `is true` keeps the condition on the tenant ($1) out of index
-- conditions, so that the forks are found by their source in every plan. page_start: row-level
-- security lets an index compare with the value of a subquery, but not with coalesce().
with page_start as (
    select coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', timestamptz 'infinity') as created_ts,
        coalesce($4, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff') as conversation_id
)
select c.conversation_id as "conversation_id!", c.agent_id as "agent_id!", c.user_id as "user_id!", c.title as "title!",
    c.status as "status!", c.pinned as "pinned!", c.metadata::text as "metadata!", '' as "system_prompt!",
    c.policy::text as "policy!", c.encoding as "encoding!", null::text as "chat_options?",
    c.revision as "revision!", c.session_key as "session_key!",
    c.last_message_id as "last_message_id!", c.counted_message_id as "counted_message_id!", c.token_total as "token_total!",
    c.turn as "turn!", coalesce(c.withdrawn_messages, 0) as "withdrawn_messages!", c.forked_from_id as "forked_from_id?",
    c.forked_message_id as "forked_message_id?", (extract(epoch from c.created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from c.last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from (
    select conversation_id, created_ts from ai_fork
    where source_id = $2
      and (tenant_id = $1) is true
      and created_ts <= (select created_ts from page_start)
      and (created_ts, conversation_id) < (select created_ts, conversation_id from page_start)
    order by created_ts desc, conversation_id desc
    limit $5
) as f
cross join lateral (
    select conversation_id, agent_id, user_id, title, status, pinned, metadata, policy, encoding, revision, session_key,
        last_message_id, counted_message_id, token_total, turn, withdrawn_messages, forked_from_id, forked_message_id, created_ts,
        last_activity_ts
    from ai_conversation
    where tenant_id = $1
      and conversation_id = f.conversation_id
    limit 1
) as c
order by f.created_ts desc, f.conversation_id desc
