-- Updates the given attributes of a conversation; null leaves an attribute as it is. If $10, the
-- options of turns become $11, which may be null. A new system prompt or policy clears the trigger
-- bounds (quiet_message_id). A new policy also lets a compaction that made no progress be tried
-- again (stalled_message_id 0).
update ai_conversation
set title = coalesce($3, title),
    title_given = title_given or $3 is not null,
    status = coalesce($4, status),
    pinned = coalesce($5, pinned),
    metadata = coalesce($6::text::jsonb, metadata),
    system_prompt = coalesce($7, system_prompt),
    system_prompt_tokens = coalesce($8, system_prompt_tokens),
    policy = coalesce($9::text::jsonb, policy),
    chat_options = case when $10::boolean then $11::text::json else chat_options end,
    quiet_message_id = case when $7::text is null and $9::text is null then quiet_message_id end,
    stalled_message_id = case when $9 is null then stalled_message_id else 0 end,
    revision = revision + 1
where tenant_id = $1
  and conversation_id = $2
