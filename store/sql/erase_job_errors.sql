-- Replaces the errors of a conversation's jobs ($2: all kinds, $3), waiting and dead ones. They hold
-- no content; if one did all the same, it would be gone with the messages. Why a job waits stays
-- known in that it has an error (enqueue_jobs.sql, mend_times.sql); 'lease expired' is none of these.
-- Returns the number of changed jobs. An erasure has locked the jobs. Retention has not: it gives up
-- when it waits for one.
with jobs as (
    update ai_job set last_error = 'erased'
    where tenant_id = $1
      and conversation_id = $3
      and kind = any ($2)
      and last_error not in ('lease expired', 'erased')
    returning 1 as one
), dead_jobs as (
    update ai_job_dead set last_error = 'erased'
    where tenant_id = $1
      and conversation_id = $3
      and kind = any ($2)
      and last_error <> 'erased'
    returning 1 as one
)
select (select count(*) from jobs) as "jobs!", (select count(*) from dead_jobs) as "dead_jobs!"
