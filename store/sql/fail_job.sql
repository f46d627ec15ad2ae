-- Records a failed run ($4: the error). The job waits $5 milliseconds or, after $6 starts, becomes
-- a dead job. Returns no row if the lease is lost. Rows are found by key in every plan (see
-- claim_jobs.sql).
with held as materialized (
    select attempts >= $6 as dead from ai_job
    where kind = $1
      and conversation_id = $2
      and lease = $3
      and (state = 1) is true
    for update
), given_up as (
    delete from ai_job as j using held
    where held.dead
      and j.kind = $1
      and j.conversation_id = $2
    returning j.tenant_id, j.kind, j.conversation_id, j.generation, j.attempts, j.argument, j.dirty_ts
), recorded as (
    insert into ai_job_dead as d (tenant_id, kind, conversation_id, generation, attempts, last_error, argument, dirty_ts)
    select tenant_id, kind, conversation_id, generation, attempts, left($4, 2000), argument, dirty_ts from given_up
    on conflict (kind, conversation_id) do update set
        generation = excluded.generation, attempts = excluded.attempts, last_error = excluded.last_error,
        argument = excluded.argument, died_ts = now()
), retry as (
    update ai_job as j
    set state = 0, lease = null, lease_until_ts = null, worker = null, last_error = left($4, 2000),
        due_ts = now() + $5::double precision * interval '1 millisecond'
    from held
    where not held.dead
      and j.kind = $1
      and j.conversation_id = $2
)
select dead as "dead!" from held
