-- Conversations with uncounted messages but without a counting job (waiting, running or dead).
-- There must be none, because an append commits messages and job together.
select conversation_id from ai_conversation as c
where c.counted_message_id < c.last_message_id
  and not exists (select from ai_job where kind = 1 and conversation_id = c.conversation_id)
  and not exists (select from ai_job_dead where kind = 1 and conversation_id = c.conversation_id)
limit 10
