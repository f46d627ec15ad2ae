-- One conversation, with its system prompt and its options of turns.
select conversation_id, agent_id, user_id, title, status, pinned, metadata::text as "metadata!", system_prompt,
    policy::text as "policy!", encoding, chat_options::text as "chat_options?", revision, session_key, last_message_id,
    counted_message_id, token_total, turn, coalesce(withdrawn_messages, 0) as "withdrawn_messages!", forked_from_id, forked_message_id,
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from last_activity_ts) * 1000000)::bigint as "last_activity_us!"
from ai_conversation
where tenant_id = $1
  and conversation_id = $2
