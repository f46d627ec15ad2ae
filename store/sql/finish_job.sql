-- Ends a job in the transaction of its results: gone when nothing arrived since the claim ($4 = generation), else waiting
-- again, with an argument only if that arrived meanwhile. No row: the lease is lost. A success clears an older death.
with held as materialized (
    select kind, conversation_id, generation = $4 as clean from ai_job
    where kind = $1
      and conversation_id = $2
      and lease = $3
      and state = 1
    for update
), gone as (
    delete from ai_job as j using held
    where held.clean
      and j.kind = held.kind
      and j.conversation_id = held.conversation_id
), again as (
    update ai_job as j
    set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = 0, last_error = null,
        due_ts = now(), dirty_ts = now(),
        argument = case when j.argument_generation > $4 then j.argument end,
        argument_generation = case when j.argument_generation > $4 then j.argument_generation end,
        priority = case when j.argument_generation > $4 then j.priority else 0 end
    from held
    where not held.clean
      and j.kind = held.kind
      and j.conversation_id = held.conversation_id
), revived as (
    delete from ai_job_dead as d using held
    where d.kind = held.kind
      and d.conversation_id = held.conversation_id
)
select clean as "clean!" from held
