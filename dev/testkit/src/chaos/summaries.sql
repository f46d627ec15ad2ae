-- The summaries of a conversation ($1) that a model wrote: of checkpoints, and of messages (first
-- and last are then the message).
select true as checkpoint, source_first_message_id as first, last_message_id as last, summary,
    (extract(epoch from created_ts) * 1000)::bigint as stored_ms
from ai_conversation_checkpoint
where conversation_id = $1
  and kind = 1
union all
select false, message_id, message_id, summary_cache, (extract(epoch from summary_ts) * 1000)::bigint
from ai_message
where conversation_id = $1
  and summary_kind = 1
