-- Creates a conversation and, if the session key ($13) is not empty, the session in which it is
-- active. If one of the two exists already, fails and creates neither.
with made as (
    insert into ai_conversation (
        tenant_id, conversation_id, agent_id, user_id, title, title_given, pinned, metadata, system_prompt,
        system_prompt_tokens, policy, encoding, create_digest, session_key, chat_options
    ) values ($1, $2, $3, $4, $5, $5 <> '', $6, $7::text::jsonb, $8, $9, $10::text::jsonb, $11, $12, $13, $14::text::json)
)
insert into ai_session (tenant_id, session_key, conversation_id)
select $1, $13, $2 where $13 <> ''
