-- Makes a conversation.
insert into ai_conversation (
    tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata, system_prompt, system_prompt_tokens, policy,
    encoding, create_digest
) values ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, $9, $10::text::jsonb, $11, $12)
