-- Shows whether the work of a conversation is done or has a job: its last counted message, the
-- kinds of its jobs (waiting, running or dead), and whether its trigger bounds were last computed
-- under these settings. $3: the fingerprint of the settings, which quiet_rules stores.
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
