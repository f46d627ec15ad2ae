-- Whether the user ($2) has a conversation.
-- `listed_ts <= 'infinity'`: see has_conversations.sql. A range of users: see
-- lock_conversation_to_erase_of_user.sql.
select exists (
    select from ai_conversation
    where tenant_id = $1
      and user_id between $2 and $2
      and listed_ts <= 'infinity'
) as "exists!"
