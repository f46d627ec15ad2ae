-- Ends jobs of a kind in the transaction of their results ($1: the kind, $2: conversations, $3:
-- leases, $4: generations at the claim, $5: whether the job left some work).
-- - A job is deleted ("clean") if it left no work and no new work arrived since the claim.
-- - Otherwise it waits again. It keeps its argument only if that arrived since the claim.
-- - A job that has lost its lease does not change, and has no row in the result.
-- - A dead job of the same kind and conversation is deleted.
-- Rows are found by key in every plan (see claim_jobs.sql).
with held as materialized (
    select mine.conversation_id, mine.generation, locked.generation = mine.generation and not mine.more as clean
    from (
        select conversation_id, lease, generation, more
        from unnest((select $2::uuid[]), (select $3::uuid[]), (select $4::bigint[]), (select $5::boolean[]))
            as mine (conversation_id, lease, generation, more)
        order by conversation_id
    ) as mine
    cross join lateral (
        select generation from ai_job
        where kind = $1
          and conversation_id = mine.conversation_id
          and lease = mine.lease
          and (state = 1) is true
        limit 1
        for update
    ) as locked
), deleted as (
    delete from ai_job
    where (kind = $1) is true
      and conversation_id = any (array(select conversation_id from held where clean))
), requeued as (
    update ai_job as j
    set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = 0, last_error = null,
        due_ts = now(), dirty_ts = now(),
        argument = case when j.argument_generation > held.generation then j.argument end,
        argument_generation = case when j.argument_generation > held.generation then j.argument_generation end,
        priority = case when j.argument_generation > held.generation then j.priority else 0 end
    from held
    where not held.clean
      and (j.kind = $1) is true
      and j.conversation_id = held.conversation_id
      and j.conversation_id = any (array(select conversation_id from held where not clean))
), deleted_dead as (
    delete from ai_job_dead
    where (kind = $1) is true
      and conversation_id = any (array(select conversation_id from held))
)
select conversation_id as "conversation_id!", clean as "clean!" from held
