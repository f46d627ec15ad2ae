-- Conversations of a tenant, newest activity first, from a place on ($6, $7). Without system prompts.
select conversation_id, agent_id, user_id, title, status, pinned, metadata::text as "metadata!", '' as "system_prompt!",
    policy::text as "policy!", encoding, revision, last_message_id, counted_message_id, token_total, turn,
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from ai_conversation
where tenant_id = $1
  and ($2::text is null or agent_id = $2)
  and ($3::text is null or user_id = $3)
  and ($4::smallint is null or status = $4)
  and ($5::text is null or starts_with(title, $5))
  and ($6::bigint is null
       or (last_activity_ts, conversation_id)
          < (timestamptz 'epoch' + $6 * interval '1 microsecond', $7::uuid))
order by last_activity_ts desc, conversation_id desc
limit $8
