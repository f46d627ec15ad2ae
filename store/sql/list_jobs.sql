-- A page of a tenant's jobs in the order of state (1 waiting, 2 running, 3 dead), kind and
-- conversation. $2: the kind, $3: the state, $4: the conversation; null: any. The page starts after
-- the job with the state $5, the kind $6 and the conversation $7; null: with the first one. The
-- column "due_us" is when a waiting job is due, when a running job's lease ends, or when a dead job
-- was given up.
select state as "state!", kind as "kind!", conversation_id as "conversation_id!", attempts as "attempts!",
    (extract(epoch from due_ts) * 1000000)::bigint as "due_us!",
    (extract(epoch from dirty_ts) * 1000000)::bigint as "dirty_us!", last_error as "last_error?", worker as "worker?"
from (
    select (state + 1)::smallint as state, kind, conversation_id, attempts, coalesce(lease_until_ts, due_ts) as due_ts,
        dirty_ts, last_error, worker
    from ai_job
    where tenant_id = $1
    union all
    select 3::smallint, kind, conversation_id, attempts, died_ts, dirty_ts, last_error, null
    from ai_job_dead
    where tenant_id = $1
) as job
where ($2::smallint is null or kind = $2)
  and ($3::smallint is null or state = $3)
  and ($4::uuid is null or conversation_id = $4)
  and ($5::smallint is null or (state, kind, conversation_id) > ($5, $6::smallint, $7::uuid))
order by state, kind, conversation_id
limit $8
