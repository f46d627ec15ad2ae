-- Stores a response ($3) of a conversation ($2), which cannot be deleted meanwhile. No row: the conversation does not exist, or the
-- response exists.
insert into ai_response (tenant_id, response_id, conversation_id, request_id, previous_response_id, after_message_id, is_chain,
                         background, request, request_digest)
select $1, $3, c.conversation_id, $4, $5, $6, $7, $8, $9::text::json, $10
from (
    select conversation_id from ai_conversation where tenant_id = $1 and conversation_id = $2 for key share
) as c
on conflict (tenant_id, response_id) do nothing
returning (extract(epoch from created_ts) * 1000000)::bigint as "created_us!"
