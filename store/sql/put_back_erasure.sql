-- Lets other erasures have their turn before this one ($2), which cannot go on now. Does nothing if
-- another worker makes a step of it.
update ai_erasure
set stepped_ts = now()
where tenant_id = $1
  and erasure_id = (
      select erasure_id from ai_erasure
      where tenant_id = $1
        and erasure_id = $2
        and state = 0
      for update skip locked
  )
