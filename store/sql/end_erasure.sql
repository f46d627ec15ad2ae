-- Ends an erasure ($2) of which nothing is left. $3: its rows by table. If it ends with its first
-- step, nothing was there.
update ai_erasure
set state = 1,
    ended_ts = now(),
    stepped_ts = now(),
    user_id = null,
    rows_erased = $3::text::jsonb,
    expected_conversations = case when conversations = 0 then 0 else expected_conversations end,
    expected_messages = case when conversations = 0 then 0 else expected_messages end
where tenant_id = $1
  and erasure_id = $2
