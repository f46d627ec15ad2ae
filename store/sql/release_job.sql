-- Puts a claimed job back into the queue, due in $5 milliseconds. This start does not count. $4:
-- why the job waits, stored as last_error; '' leaves last_error as it is. `is true`: the row is
-- found by key in every plan (see claim_jobs.sql).
update ai_job
set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = attempts - 1,
    due_ts = now() + $5::double precision * interval '1 millisecond',
    last_error = coalesce(nullif(left($4, 2000), ''), last_error)
where kind = $1
  and conversation_id = $2
  and lease = $3
  and (state = 1) is true
