-- A conversation that was created for a session, and the digest of the request that created it.
-- Another conversation may be active in the session by now.
select (extract(epoch from s.created_ts) * 1000000)::bigint as "session_created_us?",
    (extract(epoch from s.rotated_ts) * 1000000)::bigint as "rotated_us?", c.conversation_id, c.agent_id, c.user_id, c.title,
    c.status, c.pinned, c.metadata::text as "metadata!", c.system_prompt, c.policy::text as "policy!", c.encoding, c.revision,
    c.session_key, c.last_message_id, c.counted_message_id, c.token_total, c.turn,
    coalesce(c.withdrawn_messages, 0) as "withdrawn_messages!", c.forked_from_id, c.forked_message_id,
    (extract(epoch from c.created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from c.last_activity_ts) * 1000000)::bigint as "last_activity_us!", c.create_digest
from ai_conversation as c
left join ai_session as s
  on s.tenant_id = c.tenant_id
 and s.session_key = c.session_key
where c.tenant_id = $1
  and c.conversation_id = $2
