-- Ends jobs in the transaction of their results ($1: kinds, $2: conversations, $3: leases, $4: generations): gone when nothing
-- arrived since the claim and the job itself leaves nothing to do ($5), else waiting again, with an argument only if that
-- arrived meanwhile. A row that does not come back: the lease is lost. A success clears an older death.
with held as materialized (
    select j.kind, j.conversation_id, mine.generation, j.generation = mine.generation and not mine.more as clean
    -- (select $1): how many there are is hidden from the planner, which then joins by key, row by row
    from unnest(
        (select $1::smallint[]), (select $2::uuid[]), (select $3::uuid[]), (select $4::bigint[]), (select $5::boolean[])
    ) as mine (kind, conversation_id, lease, generation, more)
    join ai_job as j
      on j.kind = mine.kind
     and j.conversation_id = mine.conversation_id
     and j.lease = mine.lease
     and j.state = 1
    order by j.kind, j.conversation_id
    for update of j
), gone as (
    delete from ai_job as j using held
    where held.clean
      and j.kind = held.kind
      and j.conversation_id = held.conversation_id
), again as (
    update ai_job as j
    set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = 0, last_error = null,
        due_ts = now(), dirty_ts = now(),
        argument = case when j.argument_generation > held.generation then j.argument end,
        argument_generation = case when j.argument_generation > held.generation then j.argument_generation end,
        priority = case when j.argument_generation > held.generation then j.priority else 0 end
    from held
    where not held.clean
      and j.kind = held.kind
      and j.conversation_id = held.conversation_id
), revived as (
    delete from ai_job_dead as d using held
    where d.kind = held.kind
      and d.conversation_id = held.conversation_id
)
select kind as "kind!", conversation_id as "conversation_id!", clean as "clean!" from held
