-- The dead jobs of a conversation, in the order in which they were given up.
select kind, attempts, last_error, (extract(epoch from died_ts) * 1000000)::bigint as "died_us!"
from ai_job_dead
where tenant_id = $1
  and conversation_id = $2
order by died_ts, kind
