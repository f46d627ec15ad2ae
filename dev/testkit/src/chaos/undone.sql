-- The work of a conversation ($1) that is due and has no job, at any moment: counts, a checkpoint,
-- summaries of messages. No row if the conversation has a job, waiting, running or dead: each one
-- ends or causes the due work, and a counting job evaluates the triggers. A checkpoint is due
-- when max_message_count messages of the tail stand (0 or absent: never), unless an earlier try
-- found nothing to cut off and no message was appended or changed since (stalled_message_id).
select c.counted_message_id < c.last_message_id as uncounted,
    coalesce((c.policy ->> 'max_message_count')::bigint, 0) between 1 and t.messages
        and c.stalled_message_id < c.last_message_id as uncompacted,
    t.unsummarized > 0 as unsummarized
from ai_conversation as c
cross join lateral (
    select coalesce(max(after_message_id), 0) as after from ai_separator
    where conversation_id = c.conversation_id
) as s
cross join lateral (
    select coalesce(max(last_message_id), 0) as last from ai_conversation_checkpoint
    where conversation_id = c.conversation_id
      and first_message_id = s.after + 1
) as k
cross join lateral (
    select count(*) as messages,
        count(*) filter (where summary_ts is null
            and token_count > (c.policy ->> 'large_message_threshold')::bigint) as unsummarized
    from ai_message
    where conversation_id = c.conversation_id
      and message_id > greatest(s.after, k.last)
      and withdrawn_ts is null
) as t
where c.conversation_id = $1
  and not exists (select from ai_job where conversation_id = c.conversation_id)
  and not exists (select from ai_job_dead where conversation_id = c.conversation_id)
