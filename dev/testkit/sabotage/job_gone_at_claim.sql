-- A naive implementation takes a job out of the queue when it claims it. `JOB_GONE_AT_CLAIM` in
-- dev/testkit/src/chaos/sabotage.rs changes the later statements, so that they succeed without the
-- job's row. The servers count no messages (`COUNTED_BY_WORKERS` there), so that each append
-- enqueues a job.
create schema sabotage;

create function sabotage.delete_claimed_job() returns trigger language plpgsql security definer as $$
begin
    delete from ai_job
    where kind = new.kind
      and conversation_id = new.conversation_id
      and lease = new.lease;
    return null;
end
$$;

create trigger sabotage after update on ai_job
for each row when (old.state = 0 and new.state = 1) execute function sabotage.delete_claimed_job();
