-- The checkpoints of a conversation that no longer hold, the last ones set aside first, at most $3.
-- "has_content" says whether anything is left of what they said, as must not be once a message in
-- their range was erased.
select void_change_id, first_message_id, last_message_id,
    summary <> '' or focus <> '' or octet_length(source_digest) > 0 as "has_content!"
from ai_void_checkpoint
where tenant_id = $1
  and conversation_id = $2
order by void_change_id desc, first_message_id desc, last_message_id desc
limit $3
