-- For operators: the $1 jobs of all tenants that were given up last, the newest first.
select t.name as "tenant!", d.kind, d.conversation_id, d.attempts, d.last_error,
    (extract(epoch from d.died_ts) * 1000000)::bigint as "died_us!",
    (extract(epoch from d.dirty_ts) * 1000000)::bigint as "dirty_us!"
from ai_job_dead as d
join tenant as t on t.tenant_id = d.tenant_id
order by d.died_ts desc, d.conversation_id
limit $1
