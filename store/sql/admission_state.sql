-- The figures from which the admission of a call to a model ($3) is decided: calls in flight, the
-- tenant's usage today, whether a turn of the conversation ($2) runs, and the breakers of the
-- tenant and of the conversation. The caller has locked the model's row. "has_other_tenants": the
-- default tenant ($4) always exists, and counts only once it has called a model. Each `exists`
-- reads one or two index entries. One condition for all tenants together would make PostgreSQL hash
-- the whole table ai_model_spend. "tenant_tokens" are the tokens that the tenant has used and
-- reserved today, "seconds_to_next_day" are those until the next day (UTC). Returns no row if there is
-- no such conversation, unless the call is for a turn that is not stored ($5).
select
    calls.in_flight as "calls_in_flight!", calls.tenant_in_flight as "tenant_calls_in_flight!",
    (
        exists (select from tenant where tenant_id not in ($1, $4::uuid))
        or ($1 <> $4 and exists (select from ai_model_spend where tenant_id = $4))
    ) as "has_other_tenants!",
    (
        (select coalesce(sum(input_tokens + output_tokens), 0) from ai_model_spend
         where tenant_id = $1 and day = (now() at time zone 'utc')::date)
        + (select coalesce(sum(reserved_tokens), 0) from ai_model_lease where tenant_id = $1 and lease_until_ts > now())
    )::bigint as "tenant_tokens!",
    extract(epoch from date_trunc('day', now() at time zone 'utc') + interval '1 day' - now() at time zone 'utc')
        ::double precision as "seconds_to_next_day!",
    exists (
        select from ai_model_lease where conversation_id = $2 and turn and lease_until_ts > now()
    ) as "turn_in_flight!",
    coalesce(b.failures, 0) as "failures!",
    extract(epoch from b.open_until_ts - now())::double precision as "open_seconds?",
    coalesce(t.failures, 0) as "tenant_failures!",
    extract(epoch from t.open_until_ts - now())::double precision as "tenant_open_seconds?",
    extract(epoch from now() - t.opened_ts)::double precision as "tenant_opened_seconds?",
    coalesce(t.last_error, '') as "tenant_error!"
from (
    select $2::uuid as conversation_id
    where $5::boolean
       or exists (select from ai_conversation where tenant_id = $1 and conversation_id = $2)
) as c
cross join lateral (
    select count(*) as in_flight, count(*) filter (where l.tenant_id = $1) as tenant_in_flight from ai_model_lease as l
    where l.model = $3
      and l.lease_until_ts > now()
) as calls
left join ai_conversation_breaker as b on b.conversation_id = c.conversation_id and b.model = $3
left join ai_tenant_breaker as t on t.tenant_id = $1 and t.model = $3
