-- Whether the user ($2) has a conversation.
-- `listed_ts is not null` holds for all: with it, a plan may use the index by tenant and user (see
-- migrations/0008_places.sql), and reads no other tenant's pages.
select exists (
    select from ai_conversation
    where tenant_id = $1
      and user_id = $2
      and listed_ts is not null
) as "exists!"
