-- A page of the recorded beginnings of a conversation's contexts ($2), newest first, without the
-- marks of changes, and the sums of the usage reports of each one's time. The page starts before
-- the number $3; null: with the newest one. It has at most $4 entries.
-- "until" is the time at which the next one began; null: the row is the newest. Eras and calls are
-- put into one order of time. Each call then belongs to the era with the highest number so far.
with era as materialized (
    select p.epoch, p.boundary_message_id, p.swapped_message_ids, p.cut, p.at_message_id, p.reason, p.broken_message_id,
        p.rewritten_tokens, p.saved_tokens, p.model, p.created_ts,
        (
            select created_ts from ai_context_prefix
            where tenant_id = $1
              and conversation_id = $2
              and epoch > p.epoch
              and change_epoch is distinct from epoch
            order by epoch
            limit 1
        ) as until
    from ai_context_prefix as p
    where p.tenant_id = $1
      and p.conversation_id = $2
      and ($3::bigint is null or p.epoch < $3)
      and p.change_epoch is distinct from p.epoch
    order by p.epoch desc
    limit $4
), page as (
    -- infinity: the newest era has not ended.
    select min(created_ts) as began, max(coalesce(until, timestamptz 'infinity')) as ended from era
), entry as (
    select epoch, created_ts, null::bigint as input_tokens, null::bigint as cached_tokens, null::bigint as written_tokens,
        null::bigint as expected_tokens, null::bigint as output_tokens, null::smallint as cache_state, false as is_call
    from era
    union all
    select null, created_ts, input_tokens, cached_tokens, written_tokens, expected_tokens, output_tokens, cache_state, true
    from ai_model_call
    where tenant_id = $1
      and conversation_id = $2
      and ping is not true
      and created_ts >= (select began from page)
      and created_ts < (select ended from page)
), call as (
    select max(epoch) over (order by created_ts) as epoch, input_tokens, cached_tokens, written_tokens, expected_tokens,
        output_tokens, cache_state, is_call
    from entry
), total as (
    select epoch, count(*) as calls, sum(input_tokens) as input_tokens, sum(cached_tokens) as cached_tokens,
        sum(written_tokens) as written_tokens, sum(expected_tokens) as expected_tokens, sum(output_tokens) as output_tokens,
        count(*) filter (where cache_state = 3) as cold
    from call
    where is_call
    group by epoch
)
select era.epoch as "epoch!", era.boundary_message_id as "boundary!", era.swapped_message_ids as "swapped!", era.cut as "cut!",
    era.at_message_id as "at!", era.reason as "reason!", era.broken_message_id as "broken_at!",
    era.rewritten_tokens as "rewritten!", era.saved_tokens as "saved!", era.model as "model?",
    (extract(epoch from era.created_ts) * 1000000)::bigint as "created_us!",
    coalesce(total.calls, 0) as "calls!", coalesce(total.input_tokens, 0)::bigint as "input!",
    coalesce(total.cached_tokens, 0)::bigint as "cached!", coalesce(total.written_tokens, 0)::bigint as "written!",
    coalesce(total.expected_tokens, 0)::bigint as "expected!", coalesce(total.output_tokens, 0)::bigint as "output!",
    coalesce(total.cold, 0) as "cold!"
from era
left join total on total.epoch = era.epoch
order by era.epoch desc
