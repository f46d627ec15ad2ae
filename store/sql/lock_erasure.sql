-- Locks an erasure ($2) for a step. No row: it has ended, or another worker makes a step of it.
select kind, user_id, expected_conversations is null and conversations = 0 as "is_first_step!",
    rows_erased::text as "rows_erased!", ids_digest
from ai_erasure
where tenant_id = $1
  and erasure_id = $2
  and state = 0
for update skip locked
