-- Frees up to $2 jobs of a kind ($1) whose lease has ended. A job that was started $3 times is
-- given up; any other waits again, and its starts stay counted. Rows are found by key in every plan
-- (see claim_jobs.sql).
with expired as materialized (
    select locked.conversation_id, locked.is_given_up
    from (
        select conversation_id
        from (
            select conversation_id from ai_job
            where kind = $1
              and state = 1
              and lease_until_ts < now()
            order by lease_until_ts
            limit $2
        ) as first
        order by conversation_id
    ) as ended
    cross join lateral (
        select conversation_id, attempts >= $3 as is_given_up from ai_job
        where kind = $1
          and conversation_id = ended.conversation_id
          and (state = 1) is true
          and lease_until_ts < now()
        limit 1
        for update skip locked
    ) as locked
), given_up as (
    delete from ai_job
    where (kind = $1) is true
      and conversation_id = any (array(select conversation_id from expired where is_given_up))
    returning tenant_id, kind, conversation_id, generation, attempts, argument, dirty_ts
), dead as (
    insert into ai_job_dead as d (tenant_id, kind, conversation_id, generation, attempts, last_error, argument, dirty_ts)
    select tenant_id, kind, conversation_id, generation, attempts, 'lease expired', argument, dirty_ts from given_up
    on conflict (kind, conversation_id) do update set
        generation = excluded.generation, attempts = excluded.attempts, last_error = excluded.last_error,
        argument = excluded.argument, died_ts = now()
    returning 1 as one
), freed as (
    update ai_job
    set state = 0, lease = null, lease_until_ts = null, worker = null, last_error = 'lease expired', due_ts = now()
    where (kind = $1) is true
      and conversation_id = any (array(select conversation_id from expired where not is_given_up))
    returning 1 as one
)
select (select count(*) from freed) as "waiting!", (select count(*) from dead) as "dead!"
