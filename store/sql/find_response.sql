-- A response ($2).
select
    response_id, conversation_id, request_id, previous_response_id, after_message_id, question_last_id,
    answer_message_id, is_chain, background,
    (extract(epoch from cancelled_ts) * 1000000)::bigint as cancelled_us,
    request::text as "request!", request_digest,
    (extract(epoch from created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from ended_ts) * 1000000)::bigint as ended_us,
    outcome::text as outcome
from ai_response
where tenant_id = $1 and response_id = $2
