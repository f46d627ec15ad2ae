-- For each kind of job: the number of jobs that wait, that wait and are due ("ready"), that run and
-- that are dead, and for how long the oldest ready job has been due.
select k.kind as "kind!",
    (select count(*) from ai_job where kind = k.kind and state = 0) as "waiting!",
    (select count(*) from ai_job where kind = k.kind and state = 0 and due_ts <= now()) as "ready!",
    (select count(*) from ai_job where kind = k.kind and state = 1) as "running!",
    (select count(*) from ai_job_dead where kind = k.kind) as "dead!",
    coalesce((
        select (extract(epoch from now() - min(due_ts)) * 1000000)::bigint from ai_job
        where kind = k.kind
          and state = 0
          and due_ts <= now()
    ), 0) as "oldest_ready_us!"
from unnest($1::smallint[]) as k (kind)
order by k.kind
