-- The summaries of a conversation ($1) that a model wrote: of checkpoints, and of messages (first
-- and last are then the message). "standing": the messages of this range that stand.
select true as checkpoint, source_first_message_id as first, last_message_id as last, summary,
    (extract(epoch from created_ts) * 1000)::bigint as stored_ms,
    array(
        select message_id from ai_message
        where conversation_id = $1
          and message_id between k.source_first_message_id and k.last_message_id
          and withdrawn_ts is null
        order by message_id
    ) as standing
from ai_conversation_checkpoint as k
where conversation_id = $1
  and kind = 1
union all
select false, message_id, message_id, summary_cache, (extract(epoch from summary_ts) * 1000)::bigint,
    array(select message_id where withdrawn_ts is null)
from ai_message
where conversation_id = $1
  and summary_kind = 1
