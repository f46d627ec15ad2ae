-- Whether the work of a conversation is done or has a job: the last counted message, the kinds of
-- jobs that wait, run or are dead, and whether its triggers were last checked under the same settings ($3).
select c.last_message_id, c.counted_message_id, (c.quiet_rules = $3::bigint) is true as "same_rules!",
    array(
        select kind from ai_job
        where conversation_id = c.conversation_id
        union
        select kind from ai_job_dead
        where conversation_id = c.conversation_id
    ) as "kinds!: Vec<i16>"
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id = $2
