-- Conversations of a tenant's user with an agent, newest activity first, from a place on ($6, $7). Without system prompts. The inner limit is
-- the largest page and one more: what any plan is made for, so that it walks the index.
select conversation_id, agent_id, user_id, title, status, pinned, metadata::text as "metadata!", '' as "system_prompt!",
    policy::text as "policy!", encoding, revision, session_key, last_message_id, counted_message_id, token_total, turn,
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from (
    select conversation_id, agent_id, user_id, title, status, pinned, metadata, policy, encoding, revision, session_key,
        last_message_id, counted_message_id, token_total, turn, created_ts, last_activity_ts
    from ai_conversation
    where tenant_id = $1
      and user_id = $2
      and agent_id = $3
      and ($4::smallint is null or status = $4)
      and ($5::text is null or starts_with(title, $5))
      and (last_activity_ts, conversation_id) < (
          coalesce(timestamptz 'epoch' + $6::bigint * interval '1 microsecond', timestamptz 'infinity'),
          coalesce($7, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      )
    order by last_activity_ts desc, conversation_id desc
    limit 501
) as page
order by last_activity_ts desc, conversation_id desc
limit $8
