-- Whether a conversation, which the caller has locked for deletion, has no response, no message that stands after $3, and no turn in
-- progress but the one with the request id $4.
select not exists (
        select from ai_response as r where r.conversation_id = $2 and (r.tenant_id = $1) is true
    )
    and not exists (
        select from ai_message as m
        where m.tenant_id = $1 and m.conversation_id = $2 and m.message_id > $3 and m.withdrawn_ts is null
    )
    and not exists (
        select from ai_model_lease as l
        where l.conversation_id = $2 and l.lease_until_ts > now() and l.request_id is distinct from $4
    ) as "is_unused!"
