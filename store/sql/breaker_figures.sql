-- For each of these models ($1): the seconds until the cooldown of its breaker ends (zero or less:
-- it has ended; null: the breaker is closed), and the number of tenants whose own breaker for the
-- model is open. For metrics.
select m.model as "model!", coalesce(b.failures, 0) as "failures!",
    extract(epoch from b.open_until_ts - now())::double precision as "open_seconds?",
    (select count(*) from ai_tenant_breaker as t where t.model = m.model and t.open_until_ts > now())
        as "open_tenant_breakers!"
from unnest($1::text[]) as m (model)
left join ai_model_breaker as b on b.model = m.model
order by m.model
