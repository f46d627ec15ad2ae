-- Updates the figures of a locked conversation after a change of its messages. $3: by how much the
-- tokens of all messages change, $4: by how much the number of withdrawn messages changes. $5: the
-- new title; null: it stays. Turn and last role become those of the newest message that stands. The
-- trigger bounds (quiet_message_id) no longer hold, and a compaction that made no progress may be
-- tried again (stalled_message_id 0).
with newest as (
    select role, turn from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and withdrawn_ts is null
    order by message_id desc
    limit 1
)
update ai_conversation
set change_id = change_id + 1,
    revision = revision + 1,
    token_total = token_total + $3::bigint,
    withdrawn_messages = coalesce(withdrawn_messages, 0) + $4::bigint,
    turn = coalesce((select turn from newest), 0),
    last_role = (select role from newest),
    title = coalesce($5, title),
    stalled_message_id = 0,
    quiet_message_id = null
where tenant_id = $1
  and conversation_id = $2
