-- The changes of a conversation's messages before the change $3, newest first, at most $4. "void_rows"
-- is the number of checkpoints that are stored as having been set aside by the change.
select c.change_id, c.kind, c.first_ids, c.last_ids, c.void_checkpoints,
    (
        select count(*) from ai_void_checkpoint
        where tenant_id = $1
          and conversation_id = $2
          and void_change_id = c.change_id
    ) as "void_rows!",
    (extract(epoch from c.created_ts) * 1000000)::bigint as "created_us!"
from ai_message_change as c
where c.tenant_id = $1
  and c.conversation_id = $2
  and c.change_id < $3
order by c.change_id desc
limit $4
