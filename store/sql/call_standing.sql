-- How things stand for a call of a model in a conversation: calls under way, what the tenant has used today, whether a turn
-- runs, and the conversation's breaker. The caller holds the model's row.
select
    (select count(*) from ai_model_lease where model = $3 and lease_until_ts > now()) as "under_way!",
    (
        (select coalesce(sum(input_tokens + output_tokens), 0) from ai_model_spend
         where tenant_id = $1 and day = (now() at time zone 'utc')::date)
        + (select coalesce(sum(reserved_tokens), 0) from ai_model_lease where tenant_id = $1 and lease_until_ts > now())
    )::bigint as "tenant_tokens!",
    extract(epoch from date_trunc('day', now() at time zone 'utc') + interval '1 day' - now() at time zone 'utc')
        ::double precision as "day_left!",
    exists (
        select from ai_model_lease where conversation_id = $2 and turn and lease_until_ts > now()
    ) as "turn!",
    coalesce(b.failures, 0) as "failures!",
    extract(epoch from b.open_until_ts - now())::double precision as "open_seconds?"
from ai_conversation as c
left join ai_conversation_breaker as b on b.conversation_id = c.conversation_id and b.model = $3
where c.tenant_id = $1
  and c.conversation_id = $2
