-- Stores the receipt of what this transaction has erased of a conversation ($6): $7 conversations,
-- $8 messages, $9: its rows by table, $10: the digest of the erased ids. Does nothing if there is a
-- receipt with this id.
insert into ai_erasure (
    tenant_id, erasure_id, kind, state, request_digest, requested_by, ended_ts, subject_id,
    expected_conversations, expected_messages, conversations, messages, rows_erased, ids_digest
)
values ($1, $2, $3, 1, $4, $5, now(), $6, $7, $8, $7, $8, $9::text::jsonb, $10)
on conflict (erasure_id) do nothing
