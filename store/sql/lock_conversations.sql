-- Locks conversations ($1: tenants, $2: conversations) in order, without waiting: those that somebody else holds or that are
-- gone do not come back.
select held.conversation_id as "conversation_id!", held.counted_message_id as "counted_message_id!",
    held.last_message_id as "last_message_id!"
from (
    select tenant_id, conversation_id
    from unnest((select $1::uuid[]), (select $2::uuid[])) as asked (tenant_id, conversation_id)
    order by conversation_id
) as asked
cross join lateral (
    -- limit 1: by key, row by row, in this order
    select conversation_id, counted_message_id, last_message_id from ai_conversation
    where tenant_id = asked.tenant_id
      and conversation_id = asked.conversation_id
    limit 1
    for no key update skip locked
) as held
