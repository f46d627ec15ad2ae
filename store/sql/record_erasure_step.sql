-- Adds what a step has deleted to the figures of its erasure ($2): conversations ($3), messages
-- ($4), the rows of all steps by table ($5), the digest of the ids of all steps ($6). $7, $8: the
-- conversations and messages that were there at the first step; null: they are stored already, or
-- are not known.
update ai_erasure
set conversations = conversations + $3,
    messages = messages + $4,
    rows_erased = $5::text::jsonb,
    ids_digest = $6,
    expected_conversations = coalesce(expected_conversations, $7),
    expected_messages = coalesce(expected_messages, $8),
    stepped_ts = now()
where tenant_id = $1
  and erasure_id = $2
