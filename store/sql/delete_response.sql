-- Deletes a response ($3) of a conversation ($2), whose lock the caller holds, except the only one of a
-- conversation that was made for responses. Says whether the conversation has others. No row: the
-- conversation has no such response.
with found as (
    select
        r.response_id, r.is_chain,
        exists (
            select from ai_response as other
            where other.conversation_id = $2 and (other.tenant_id = $1) is true and other.response_id <> $3
        ) as others
    from ai_response as r
    where r.tenant_id = $1 and r.response_id = $3 and (r.conversation_id = $2) is true
), deleted as (
    delete from ai_response as r
    using found as f
    where r.tenant_id = $1 and r.response_id = f.response_id and (f.others or not f.is_chain)
)
select is_chain as "is_chain!", others as "others!"
from found
