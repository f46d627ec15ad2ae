-- A naive implementation enqueues the counting job after the append's commit, in another
-- transaction. Here the other transaction is the next one in which a worker updates jobs of all
-- tenants, at least 100 ms after the append. The servers count no messages (`COUNTED_BY_WORKERS` in
-- dev/testkit/src/chaos/sabotage.rs), so that each append enqueues a job.
create schema sabotage;
create table sabotage.deferred_jobs (
    tenant_id uuid, conversation_id uuid, appended_ts timestamptz default clock_timestamp()
);

create function sabotage.defer_job() returns trigger language plpgsql security definer as $$
begin
    insert into sabotage.deferred_jobs (tenant_id, conversation_id)
    values (new.tenant_id, new.conversation_id);
    return null;
end
$$;

create function sabotage.enqueue_late_jobs() returns trigger language plpgsql security definer as $$
begin
    -- Row-level security allows the jobs of all tenants only if anneal.tenants contains the nil
    -- UUID, as it does for the statements of the queue.
    if current_setting('anneal.tenants', true) not like '%00000000-0000-0000-0000-000000000000%' then
        return null;
    end if;
    with taken as (
        delete from sabotage.deferred_jobs
        where ctid in (
            select ctid from sabotage.deferred_jobs
            where appended_ts < clock_timestamp() - interval '100 milliseconds'
            for update skip locked
        )
        returning tenant_id, conversation_id
    )
    insert into ai_job as j (tenant_id, kind, conversation_id)
    select distinct tenant_id, 1, conversation_id from taken
    order by conversation_id
    on conflict (kind, conversation_id) do update set generation = j.generation + 1;
    return null;
end
$$;

-- Kind 1: counting jobs. Depth 0: not for the statements of enqueue_late_jobs itself.
create trigger sabotage before insert on ai_job
for each row when (new.kind = 1 and pg_trigger_depth() = 0) execute function sabotage.defer_job();
create trigger sabotage_late before update on ai_job
for each statement when (pg_trigger_depth() = 0) execute function sabotage.enqueue_late_jobs();
