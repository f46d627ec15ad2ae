-- Gives a claimed job back unstarted: its attempt does not count.
update ai_job
set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = attempts - 1, due_ts = now()
where kind = $1
  and conversation_id = $2
  and lease = $3
  and state = 1
