-- The figures of the tails of conversations ($1: tenants, $2: conversations), of the messages that
-- stand. $3: the server's settings by profile. $4: the overrides of a preview.
-- - "tail_tokens": what the triggers evaluate. Cool large messages count with the size of their
--   summaries.
-- - "sent_tokens": what contexts send now. Swapped messages are those that are sent as their
--   summaries. The swapped_ columns have one entry for each, in any order, which is the same in all
--   of them. "saved": the tokens by which their originals are longer.
-- - "unsummarized": large messages for which no summary was made yet. "nearly_cool": those among
--   them that are cool, or will be within one turn or two model calls.
-- - "is_prepared": whether a summary is prepared for the checkpoint after the present boundary.
--   "unprepared_until": none could be prepared; the last message before that is tried again.
-- With stepped cooling, a message is also cool if it is before the (hot_zone_calls + 1)-th newest
-- assistant message.
with settings as materialized (
    select $3::text::jsonb as bases, $4::text::jsonb as preview
), head as materialized (
    -- Materialized, so that the settings are merged once per conversation and not once per message.
    select c.tenant_id, c.conversation_id, c.last_message_id, c.stalled_message_id, c.turn, c.policy, c.encoding,
        c.system_prompt_tokens, b.separator, b.checkpoint_last, b.boundary, b.summary_tokens,
        (e.keys ->> 'large_message_threshold')::bigint as large_threshold, (e.keys ->> 'hot_zone_radius')::bigint as radius,
        e.keys ->> 'cooling' = 'stepped' as stepped,
        case when e.keys ->> 'cooling' = 'stepped' then nullif((e.keys ->> 'hot_zone_calls')::bigint, 0) end as hot_calls,
        p.swapped_message_ids, e.keys ->> 'model' as model, w.window_tokens
    from settings
    cross join unnest((select $1::uuid[]), (select $2::uuid[])) as asked (tenant_id, conversation_id)
    cross join lateral (
        -- limit 1: forces a nested loop by key. Otherwise the planner may hash all conversations.
        select tenant_id, conversation_id, last_message_id, stalled_message_id, turn, policy, encoding,
            system_prompt_tokens
        from ai_conversation
        where tenant_id = asked.tenant_id
          and conversation_id = asked.conversation_id
        limit 1
    ) as c
    cross join lateral (
        select (settings.bases -> coalesce(settings.preview ->> 'profile', c.policy ->> 'profile', ''))
            || c.policy || settings.preview as keys
    ) as e
    cross join lateral context_boundary(c.conversation_id) as b
    left join lateral (
        select swapped_message_ids from ai_context_prefix
        where conversation_id = c.conversation_id
        order by epoch desc
        limit 1
    ) as p on true
    -- offset 0: an optimization fence. `->>` is not leakproof, so under row-level security an
    -- expression with it cannot be an index condition; the column `named.model` can.
    cross join lateral (select e.keys ->> 'model' as model offset 0) as named
    left join ai_model as w
      on w.tenant_id = c.tenant_id
     and w.model = named.model
)
select h.conversation_id as "conversation_id!", h.last_message_id as "last_message_id!", h.stalled_message_id as "stalled_message_id!",
    h.policy::text as "policy!", h.encoding as "encoding!", h.system_prompt_tokens as "system_prompt_tokens!", h.separator,
    h.model as "model?", h.checkpoint_last as "checkpoint_last?", h.summary_tokens as "summary_tokens?", h.window_tokens as "window_tokens?",
    coalesce(t.tokens, 0)::bigint as "tail_tokens!", coalesce(t.sent, 0)::bigint as "sent_tokens!",
    t.messages as "tail_messages!", coalesce(t.turns, 0)::bigint as "tail_turns!", t.calls as "tail_calls!",
    t.swapped_ids as "swapped_ids!", t.swapped_roles as "swapped_roles!", t.swapped_bytes as "swapped_bytes!",
    t.swapped_outlines as "swapped_outlines!", coalesce(t.saved, 0)::bigint as "saved!",
    t.unsummarized as "unsummarized!", t.nearly_cool as "nearly_cool!", t.estimated as "estimated!",
    coalesce(prepared.summary <> '', false) as "is_prepared!",
    case when prepared.summary = '' then prepared.last_message_id end as "unprepared_until?"
from head as h
left join lateral (
    select summary, last_message_id from ai_prepared_checkpoint
    where tenant_id = h.tenant_id
      and conversation_id = h.conversation_id
      and first_message_id = coalesce(h.separator, 0) + 1
      and previous_message_id is not distinct from h.checkpoint_last
    limit 1
) as prepared on true
cross join lateral (
    -- hot_from: messages before this one are cool. warm_from: messages before this one are nearly
    -- cool. Both are null if hot_zone_calls is not in force. With hot_zone_calls = 1 warm_from is
    -- null too: every message is cool within two model calls (`h.hot_calls < 2`).
    select max(message_id) filter (where place = h.hot_calls + 1) as hot_from,
        max(message_id) filter (where place = h.hot_calls - 1) as warm_from
    from (
        select message_id, row_number() over (order by message_id desc) as place from ai_message
        where h.hot_calls is not null
          and tenant_id = h.tenant_id
          and conversation_id = h.conversation_id
          and message_id > h.boundary
          and role = 2
          and withdrawn_ts is null
    ) as newest
) as z
cross join lateral (
    select count(*) as messages, max(turn) - min(turn) + 1 as turns, count(*) filter (where role = 2) as calls,
        sum(case when cool and summary_tokens is not null then summary_tokens else tokens end) as tokens,
        sum(case when swapped then summary_tokens else tokens end) as sent,
        coalesce(array_agg(message_id) filter (where swapped), '{}') as swapped_ids,
        coalesce(array_agg(role) filter (where swapped), '{}') as swapped_roles,
        coalesce(array_agg(text_bytes) filter (where swapped), '{}') as swapped_bytes,
        coalesce(array_agg(coalesce(tool_outline::text, '[]')) filter (where swapped), '{}') as swapped_outlines,
        sum(tokens - summary_tokens) filter (where swapped) as saved,
        count(*) filter (where large and summary_ts is null) as unsummarized,
        count(*) filter (where large and summary_ts is null and nearly_cool) as nearly_cool,
        count(*) filter (where token_count is null) as estimated
    from (
        select message_id, role, turn, text_bytes, tool_outline, token_count, tokens, summary_tokens, summary_ts, large,
            large and (h.turn - turn > h.radius or message_id < z.hot_from) as cool,
            h.turn - turn >= h.radius or h.hot_calls < 2 or message_id < z.warm_from as nearly_cool,
            summary_tokens is not null and case
                when h.stepped then message_id = any (h.swapped_message_ids)
                else large and h.turn - turn > h.radius
            end as swapped
        from (
            select message_id, role, turn, text_bytes, tool_outline, token_count, summary_tokens, summary_ts,
                coalesce(token_count, token_estimate) as tokens, coalesce(token_count > h.large_threshold, false) as large
            from ai_message
            where tenant_id = h.tenant_id
              and conversation_id = h.conversation_id
              and message_id > h.boundary
              and withdrawn_ts is null
        ) as raw
    ) as m
) as t
