-- Deletes a response ($2). Says whether its conversation has others.
with deleted as (
    delete from ai_response where tenant_id = $1 and response_id = $2
    returning conversation_id, is_chain
)
select
    conversation_id, is_chain,
    exists (
        select from ai_response as other
        where other.conversation_id = deleted.conversation_id and (other.tenant_id = $1) is true and other.response_id <> $2
    ) as "others!"
from deleted
