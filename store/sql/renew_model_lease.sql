-- Renews a call's lease. While the call probes whether a breaker may close ($5: the model's or the
-- tenant's for it, $6: the conversation's), others of the tenant, or of the conversation, are kept
-- from probing. No row: the lease is gone.
with tenant as (
    update ai_tenant_breaker
    set open_until_ts = greatest(open_until_ts, now() + $4::double precision * interval '1 second')
    where $5
      and tenant_id = $1
      and open_until_ts is not null
      and model = (select model from ai_model_lease where tenant_id = $1 and conversation_id = $2 and lease = $3)
), conversation as (
    update ai_conversation_breaker
    set open_until_ts = now() + $4 * interval '1 second'
    where $6
      and tenant_id = $1
      and conversation_id = $2
      and open_until_ts is not null
)
update ai_model_lease
set lease_until_ts = now() + $4 * interval '1 second'
where tenant_id = $1
  and conversation_id = $2
  and lease = $3
