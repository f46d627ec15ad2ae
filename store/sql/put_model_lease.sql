-- Admits a call: its lease is put, and a half-open breaker lets nobody else try meanwhile.
with model as (
    update ai_model_breaker
    set open_until_ts = case when open_until_ts is not null then now() + $7::double precision * interval '1 second' end,
        updated_ts = now()
    where model = $4
), conversation as (
    update ai_conversation_breaker
    set open_until_ts = now() + $7 * interval '1 second', updated_ts = now()
    where conversation_id = $2
      and model = $4
      and open_until_ts is not null
      and not $5
)
insert into ai_model_lease (tenant_id, conversation_id, lease, model, turn, reserved_tokens, lease_until_ts)
values ($1, $2, $3, $4, $5, $6, now() + $7 * interval '1 second')
