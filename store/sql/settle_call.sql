-- Ends a call: its lease is gone, its cost is booked ($13: calls that were made), and breakers move. $8: 0 says nothing of
-- the model, 1 it answered, 2 it failed this conversation, 3 it fails. Breakers open after $10 (conversation) and $11
-- (model) failures in a row, for $12 seconds.
with gone as (
    delete from ai_model_lease
    where tenant_id = $1
      and conversation_id = $2
      and lease = $3
), booked as (
    insert into ai_model_spend as s (tenant_id, day, model, calls, failed_calls, input_tokens, output_tokens)
    select $1, (now() at time zone 'utc')::date, $4, $13::integer, $13 - case when $8 = 1 then 1 else 0 end, $5, $6
    where $13 > 0
    on conflict (tenant_id, day, model) do update set
        calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
        input_tokens = s.input_tokens + excluded.input_tokens, output_tokens = s.output_tokens + excluded.output_tokens
), model as (
    update ai_model_breaker
    set failures = case $8 when 1 then 0 when 3 then failures + 1 else failures end,
        open_until_ts = case
            when $8 = 1 then null
            when $8 = 3 and failures + 1 >= $11 then now() + $12::double precision * interval '1 second'
            else open_until_ts
        end,
        last_error = case $8 when 1 then null when 3 then left($9, 500) else last_error end,
        updated_ts = now()
    where model = $4
      and ($8 = 3 or ($8 = 1 and failures > 0))
), closed as (
    delete from ai_conversation_breaker
    where tenant_id = $1
      and conversation_id = $2
      and model = $4
      and $8 = 1
      and not $7
)
insert into ai_conversation_breaker as b (tenant_id, conversation_id, model, failures, open_until_ts, last_error)
select c.tenant_id, c.conversation_id, $4, 1,
    case when $10 <= 1 then now() + $12 * interval '1 second' end, left($9, 500)
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id = $2
  and $8 in (2, 3)
  and not $7
on conflict (conversation_id, model) do update set
    failures = b.failures + 1,
    open_until_ts = case when b.failures + 1 >= $10 then now() + $12 * interval '1 second' else b.open_until_ts end,
    last_error = excluded.last_error,
    updated_ts = now()
