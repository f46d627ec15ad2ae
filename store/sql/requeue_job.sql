-- Makes a dead job wait again, or a waiting one due now. Returns no row if there is neither. The
-- lock on the conversation's row keeps it from being deleted meanwhile, which would leave the job
-- behind. It also makes this statement wait for a change of messages, which locks all jobs that the
-- conversation has: a new one must not appear meanwhile. A running job counts as a waiting one
-- here: it gets a higher generation, so that it runs once more.
with conversation as materialized (
    select tenant_id, conversation_id from ai_conversation
    where tenant_id = $1
      and conversation_id = $3
    for no key update
), dead as (
    delete from ai_job_dead as d using conversation as c
    where d.tenant_id = c.tenant_id
      and d.kind = $2
      and d.conversation_id = c.conversation_id
    returning d.tenant_id, d.kind, d.conversation_id, d.argument
), waiting as (
    select j.tenant_id, j.kind, j.conversation_id, null::json as argument
    from conversation as c
    join ai_job as j
      on j.tenant_id = c.tenant_id
     and j.kind = $2
     and j.conversation_id = c.conversation_id
    where not exists (select from dead)
)
insert into ai_job as j (tenant_id, kind, conversation_id, argument, argument_generation)
select tenant_id, kind, conversation_id, argument, case when argument is not null then 1 end from dead
union all
select tenant_id, kind, conversation_id, argument, null from waiting
on conflict (kind, conversation_id) do update set
    generation = j.generation + 1,
    due_ts = case when j.state = 0 then now() else j.due_ts end,
    attempts = case when j.state = 0 then 0 else j.attempts end
returning j.kind
