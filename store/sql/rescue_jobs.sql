-- Frees up to $1 jobs whose lease ran out; after $2 starts they are given up. Attempts are kept.
with lost as materialized (
    select kind, conversation_id, attempts >= $2 as dead from ai_job
    where state = 1
      and lease_until_ts < now()
    order by kind, conversation_id
    limit $1
    for update skip locked
), gone as (
    delete from ai_job as j using lost
    where lost.dead
      and j.kind = lost.kind
      and j.conversation_id = lost.conversation_id
    returning j.tenant_id, j.kind, j.conversation_id, j.generation, j.attempts, j.argument, j.dirty_ts
), put as (
    insert into ai_job_dead as d (tenant_id, kind, conversation_id, generation, attempts, last_error, argument, dirty_ts)
    select tenant_id, kind, conversation_id, generation, attempts, 'lease expired', argument, dirty_ts from gone
    on conflict (kind, conversation_id) do update set
        generation = excluded.generation, attempts = excluded.attempts, last_error = excluded.last_error,
        argument = excluded.argument, died_ts = now()
    returning 1 as one
), freed as (
    update ai_job as j
    set state = 0, lease = null, lease_until_ts = null, worker = null, last_error = 'lease expired', due_ts = now()
    from lost
    where not lost.dead
      and j.kind = lost.kind
      and j.conversation_id = lost.conversation_id
    returning 1 as one
)
select (select count(*) from freed) as "waiting!", (select count(*) from put) as "dead!"
