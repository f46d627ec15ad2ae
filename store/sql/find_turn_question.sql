-- The question of the turn with request id $3 or, if that is null, of the turn that is under way in
-- the conversation: the first message of the append that stored it, or the last message of a stored
-- question that is answered anew. Both are null while neither is stored.
with asked as materialized (
    select coalesce(
        $3::text,
        (
            select l.request_id
            from ai_model_lease as l
            where l.tenant_id = $1
              and l.conversation_id = $2
              and l.turn
              and l.lease_until_ts > now()
            limit 1
        )
    ) as request_id
)
select asked.request_id as "request_id!", (
        select m.message_id
        from ai_message as m
        where m.tenant_id = $1
          and m.conversation_id = $2
          and m.request_id = asked.request_id
          and m.role in (1, 3)
          and m.withdrawn_ts is null
    ) as "first?", (
        select r.answer
        from ai_request as r
        where r.tenant_id = $1
          and r.conversation_id = $2
          and r.method = 'chat_anew'
          and r.request_id = asked.request_id
    ) as "question?"
from asked
where asked.request_id is not null
