-- Stores the lease of an admitted call, for $7 seconds. $5: whether the call is a turn. $9: the
-- request id of the turn, or of the turn after which the call keeps a cache warm; null if the call
-- is for a summary, or for a turn that is not stored ($12). $10: the stop that was asked for under the lease that this one takes over; null
-- if there is none. A half-open breaker admits one trial call at a time, so it is opened again for
-- the length of the lease:
-- - the tenant's breaker for the model, if this call is a trial call for that breaker or for the
--   model's own ($8);
-- - the conversation's breaker, if it has opened before and the call is for a summary ($11). Other
--   calls are admitted whatever that breaker says, and do not change it.
-- The model's own breaker does not change.
-- Stores no lease if there is no such conversation, unless the turn is not stored. The lock keeps the
-- conversation from being deleted meanwhile, which would leave the lease behind.
with conversation as (
    select from ai_conversation
    where tenant_id = $1
      and conversation_id = $2
    for key share
), tenant_breaker as (
    insert into ai_tenant_breaker (tenant_id, model, open_until_ts)
    select $1, $4, now() + $7::double precision * interval '1 second'
    where $8
    on conflict (tenant_id, model) do update set open_until_ts = excluded.open_until_ts, updated_ts = now()
), conversation_breaker as (
    update ai_conversation_breaker
    set open_until_ts = now() + $7 * interval '1 second', updated_ts = now()
    where conversation_id = $2
      and model = $4
      and open_until_ts is not null
      and $11
)
insert into ai_model_lease (tenant_id, conversation_id, lease, model, turn, reserved_tokens, lease_until_ts, request_id, stop)
select $1, $2, $3, $4, $5, $6, now() + $7 * interval '1 second', $9, $10
where $12::boolean
   or exists (select from conversation)
