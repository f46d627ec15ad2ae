-- Renews a call's lease for $4 seconds. If the call is a trial call, the breaker that
-- put_model_lease.sql opened for it stays open as long, so that no second trial call is admitted:
-- - the tenant's breaker, if this is a trial call for that breaker or for the model's own ($5);
-- - the conversation's breaker, if this is a trial call for it ($6).
-- Changes nothing if the lease is lost.
with tenant_breaker as (
    update ai_tenant_breaker
    set open_until_ts = greatest(open_until_ts, now() + $4::double precision * interval '1 second')
    where $5
      and tenant_id = $1
      and open_until_ts is not null
      and model = (select model from ai_model_lease where tenant_id = $1 and conversation_id = $2 and lease = $3)
), conversation_breaker as (
    update ai_conversation_breaker
    set open_until_ts = greatest(open_until_ts, now() + $4 * interval '1 second')
    where $6
      and tenant_id = $1
      and conversation_id = $2
      and open_until_ts is not null
      and model = (select model from ai_model_lease where tenant_id = $1 and conversation_id = $2 and lease = $3)
)
update ai_model_lease
set lease_until_ts = now() + $4 * interval '1 second'
where tenant_id = $1
  and conversation_id = $2
  and lease = $3
