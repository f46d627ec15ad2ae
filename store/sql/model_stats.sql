-- The models that were called, each with its calls under way in all processes, the tenant's usage
-- today, the model's breaker, the tenant's own breaker, and the number of tenants whose own breaker
-- is open. "open_seconds" and "tenant_open_seconds": the seconds until the breaker's cooldown ends;
-- zero or less: it has ended; null: the breaker is closed.
select b.model, b.failures, extract(epoch from b.open_until_ts - now())::double precision as open_seconds,
    coalesce(b.last_error, '') as "last_error!",
    (select count(*) from ai_model_lease as l where l.model = b.model and l.lease_until_ts > now()) as "under_way!",
    coalesce(of_tenant.failures, 0) as "tenant_failures!", coalesce(of_tenant.last_error, '') as "tenant_error!",
    extract(epoch from of_tenant.open_until_ts - now())::double precision as "tenant_open_seconds?",
    (select count(*) from ai_tenant_breaker as t where t.model = b.model and t.open_until_ts > now())
        as "open_tenant_breakers!",
    coalesce(s.calls, 0) as "calls!", coalesce(s.failed_calls, 0) as "failed_calls!",
    coalesce(s.input_tokens, 0) as "input_tokens!", coalesce(s.output_tokens, 0) as "output_tokens!"
from ai_model_breaker as b
left join ai_model_spend as s
  on s.tenant_id = $1
 and s.day = (now() at time zone 'utc')::date
 and s.model = b.model
left join ai_tenant_breaker as of_tenant on of_tenant.tenant_id = $1 and of_tenant.model = b.model
order by b.model
limit 500
