-- What keeps summaries of a conversation ($2) from being made: jobs of the kinds $4 that were given
-- up or have failed, until which message triggers wait, and the open breakers of the model $3, which
-- writes summaries (empty: none does). "open_seconds": until the last of the breakers may close;
-- null or not positive: none is open.
select c.last_message_id, c.stalled_message_id, d.kind is not null as "is_dead!",
    extract(epoch from greatest(m.open_until_ts, t.open_until_ts, b.open_until_ts) - now())::double precision as "open_seconds?",
    coalesce(
        d.last_error, j.last_error,
        case when m.open_until_ts > now() then m.last_error end,
        case when t.open_until_ts > now() then t.last_error end,
        case when b.open_until_ts > now() then b.last_error end,
        ''
    ) as "last_failure!"
from ai_conversation as c
left join lateral (
    select kind, last_error from ai_job_dead
    where tenant_id = $1
      and kind = any ($4::smallint[])
      and conversation_id = $2
    order by kind
    limit 1
) as d on true
left join lateral (
    select last_error from ai_job
    where tenant_id = $1
      and kind = any ($4::smallint[])
      and conversation_id = $2
      and last_error is not null
    order by kind
    limit 1
) as j on true
left join ai_model_breaker as m on m.model = $3::text
left join ai_tenant_breaker as t
  on t.tenant_id = $1
 and t.model = $3
left join ai_conversation_breaker as b
  on b.tenant_id = $1
 and b.conversation_id = $2
 and b.model = $3
where c.tenant_id = $1
  and c.conversation_id = $2
