-- Repairs times that were stored before the clock was set back, and now lie too far in the future:
-- - Leases of jobs and of model calls end at most $1 seconds from now.
-- - Jobs that were deferred, or whose last run failed ("is_put_off"), wait at most $2 seconds. In
--   their rows, last_error says why they wait. 'lease expired' is no such reason: rescue_jobs.sql
--   writes it, and sets the job due at once.
-- - All other waiting jobs are due now, unless they are due within 2 seconds anyway: a job that a
--   worker has released is due after one second.
-- - Open breakers stay open for at most $2 seconds.
-- Jobs that other transactions have locked are skipped, because those set the times themselves. No
-- index orders all waiting jobs by time, so this reads the whole queue; it runs rarely.
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
), ended as (
    update ai_job as j set lease_until_ts = now() + $1 * interval '1 second'
    from leased
    where j.kind = leased.kind
      and j.conversation_id = leased.conversation_id
    returning 1 as one
), due as (
    update ai_job as j
    set due_ts = now() + case when waiting.is_put_off then $2 * interval '1 second' else interval '0' end
    from waiting
    where j.kind = waiting.kind
      and j.conversation_id = waiting.conversation_id
    returning 1 as one
), calls as (
    update ai_model_lease set lease_until_ts = now() + $1 * interval '1 second'
    where lease_until_ts > now() + $1 * interval '1 second'
    returning 1 as one
), model as (
    update ai_model_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
), tenant as (
    update ai_tenant_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
), conversation as (
    update ai_conversation_breaker set open_until_ts = now() + $2 * interval '1 second'
    where open_until_ts > now() + $2 * interval '1 second'
    returning 1 as one
)
select (select count(*) from ended) + (select count(*) from due) + (select count(*) from calls)
    + (select count(*) from model) + (select count(*) from tenant) + (select count(*) from conversation) as "mended!"
