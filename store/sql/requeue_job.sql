-- Puts a dead job back to work, or makes a waiting one due now. No row when there is neither.
with dead as (
    delete from ai_job_dead
    where tenant_id = $1
      and kind = $2
      and conversation_id = $3
    returning tenant_id, kind, conversation_id, argument
), waiting as (
    select tenant_id, kind, conversation_id, null::json as argument from ai_job
    where tenant_id = $1
      and kind = $2
      and conversation_id = $3
      and not exists (select from dead)
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
