-- Conversations with uncounted messages that no job waits for, alive or dead: the two are committed together.
select conversation_id from ai_conversation as c
where c.counted_message_id < c.last_message_id
  and not exists (select from ai_job where kind = 1 and conversation_id = c.conversation_id)
  and not exists (select from ai_job_dead where kind = 1 and conversation_id = c.conversation_id)
limit 10
