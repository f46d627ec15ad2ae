-- Repairs times that were stored before the clock was set back, and now lie too far in the future:
-- - Leases of jobs and of model calls end at most $1 seconds from now.
-- - Jobs that were deferred, or whose last run failed ("is_put_off"), wait at most $2 seconds. In
--   their rows, last_error says why they wait. 'lease expired' is no such reason: rescue_jobs.sql
--   writes it, and sets the job due at once.
-- - All other waiting jobs are due now, unless they are due within 2 seconds anyway: a job that a
--   worker has released is due after one second.
-- - Open breakers stay open for at most $2 seconds.
-- Jobs that other transactions have locked are skipped, because these transactions set the times
-- themselves. No index orders all waiting jobs by time, so this reads the whole queue; it runs
-- rarely.
with leased as materialized (
    select kind, conversation_id from ai_job
    where state = 1
      and lease_until_ts > now() + $1::double precision * interval '1 second'
    order by kind, conversation_id
    for update skip locked
), waiting as materialized (
    select kind, conversation_id, coalesce(last_error, 'lease expired') <> 'lease expired' as is_put_off from ai_job
    where state = 0
      and due_ts > now() + case
            when coalesce(last_error, 'lease expired') <> 'lease expired' then $2::double precision * interval '1 second'
            else interval '2 seconds'
        end
    order by kind, conversation_id
    for update skip locked
), mended_leases as (
    update ai_job as j set lease_until_ts = now() + $1 * interval '1 second'
    from leased
    where j.kind = leased.kind
      and j.conversation_id = leased.conversation_id
    returning 1 as one
), mended_waits as (
    update ai_job as j
    set due_ts = now() + case when waiting.is_put_off then $2 * interval '1 second' else interval '0' end
    from waiting
    where j.kind = waiting.kind
      and j.conversation_id = waiting.conversation_id
    returning 1 as one
), mended_calls as (
    update ai_model_lease set lease_until_ts = now() + $1 * interval '1 second'
    where lease_until_ts > now() + $1 * interval '1 second'
    returning 1 as one
), mended_model_breakers as (
    update ai_model_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
), mended_tenant_breakers as (
    update ai_tenant_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
), mended_conversation_breakers as (
    update ai_conversation_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
)
select (select count(*) from mended_leases) + (select count(*) from mended_waits) + (select count(*) from mended_calls)
    + (select count(*) from mended_model_breakers) + (select count(*) from mended_tenant_breakers)
    + (select count(*) from mended_conversation_breakers) as "mended!"
