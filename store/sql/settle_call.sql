-- Settles a call: deletes its lease, books its cost and updates the breakers. The caller has locked
-- the model's row, unless the call changes no breaker of the model and of the tenant.
-- - $4: the model. $5, $6: input and output tokens. $13: the number of provider calls that were
--   made. $18: how many of them failed.
-- - $7: whether it was for a summary. Other calls do not change the conversation's breaker.
-- - $8: the verdict. 0: says nothing about the model. 1: the model answered. 2: it failed for this
--   conversation. 3: it failed for every caller. $9: the error.
-- - $10: failures in a row after which the conversation's breaker opens. $14: whether the model's
--   breaker opens. $16: whether the tenant's breaker opens. $12: for how many seconds they open.
-- - $11: the evidence: how many failures of the present series count against the model from now on.
--   Those of one tenant count only up to a limit (core/src/breaker.rs). $15: those among them that
--   are the tenant's.
-- - $17: the number of the present series. A series of failures ends when the model answers or when
--   its breaker opens.
-- - $19: whether the tenant's breaker counts as opened by the tenant's own failures: the model's
--   breaker was closed.
-- Returns how many seconds ago the tenant's breaker opened, if this call closes it; else no row.
with deleted_lease as (
    delete from ai_model_lease
    where tenant_id = $1
      and conversation_id = $2
      and lease = $3
), booked as (
    insert into ai_model_spend as s (tenant_id, day, model, calls, failed_calls, input_tokens, output_tokens)
    select $1, (now() at time zone 'utc')::date, $4, $13::integer, $18::integer, $5, $6
    where $13 > 0
    on conflict (tenant_id, day, model) do update set
        calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
        input_tokens = s.input_tokens + excluded.input_tokens, output_tokens = s.output_tokens + excluded.output_tokens
), model_breaker as (
    update ai_model_breaker
    set failures = case $8 when 1 then 0 else failures + 1 end,
        evidence = $11,
        series = series + case when $8 = 1 or $14 then 1 else 0 end,
        open_until_ts = case
            when $8 = 1 then null
            when $14 then now() + $12::double precision * interval '1 second'
            else open_until_ts
        end,
        opened_ts = case
            when $8 = 1 then null
            -- An older process closes a breaker without clearing this time.
            when $14 then coalesce(case when open_until_ts is not null then opened_ts end, now())
            else opened_ts
        end,
        last_error = case $8 when 1 then null else left($9, 500) end,
        updated_ts = now()
    where model = $4
      and ($8 = 3 or ($8 = 1 and (failures > 0 or open_until_ts is not null)))
), tenant_answered as (
    delete from ai_tenant_breaker
    where tenant_id = $1
      and model = $4
      and $8 = 1
    returning opened_ts
), tenant_failed as (
    insert into ai_tenant_breaker as o
        (tenant_id, model, failures, evidence, series, open_until_ts, opened_ts, last_error)
    select $1, $4, 1, $15, $17, case when $16 then now() + $12 * interval '1 second' end,
        case when $19 then now() end, left($9, 500)
    where $8 = 3
    on conflict (tenant_id, model) do update set
        failures = o.failures + 1, evidence = excluded.evidence, series = excluded.series,
        open_until_ts = coalesce(excluded.open_until_ts, o.open_until_ts),
        opened_ts = coalesce(o.opened_ts, excluded.opened_ts), last_error = excluded.last_error,
        updated_ts = now()
), conversation_answered as (
    delete from ai_conversation_breaker
    where tenant_id = $1
      and conversation_id = $2
      and model = $4
      and $8 = 1
      and $7
), conversation_failed as (
    insert into ai_conversation_breaker as b (tenant_id, conversation_id, model, failures, open_until_ts, last_error)
    select c.tenant_id, c.conversation_id, $4, 1,
        case when $10 <= 1 then now() + $12 * interval '1 second' end, left($9, 500)
    from ai_conversation as c
    where c.tenant_id = $1
      and c.conversation_id = $2
      and $8 in (2, 3)
      and $7
    -- The lock keeps the conversation from being deleted meanwhile, which would leave the breaker
    -- behind. A conversation that is being deleted needs none. SKIP LOCKED: the model's row, which
    -- is locked, must not wait for a deletion.
    for key share skip locked
    on conflict (conversation_id, model) do update set
        failures = b.failures + 1,
        open_until_ts = case when b.failures + 1 >= $10 then now() + $12 * interval '1 second' else b.open_until_ts end,
        last_error = excluded.last_error,
        updated_ts = now()
)
select extract(epoch from now() - opened_ts)::double precision as "opened_seconds!" from tenant_answered
where opened_ts is not null
