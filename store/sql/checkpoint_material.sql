-- The rows from which a checkpoint is planned, in one snapshot: a head row (message_id 0: settings, previous
-- summary), then the tail without content. Cool large messages have the size of their summaries.
-- Each row has the bytes that a summarizer would read of it. $3: settings by profile; $4: overrides
-- of a preview.
with head as (
    select c.conversation_id, c.last_message_id, c.turn, c.policy, c.encoding, c.system_prompt_tokens, s.separator,
        k.last_message_id as checkpoint_last, k.summary, k.token_usage, k.generation,
        greatest(coalesce(s.separator, 0), coalesce(k.last_message_id, 0)) as boundary,
        (e.keys ->> 'large_message_threshold')::bigint as large, (e.keys ->> 'hot_zone_radius')::bigint as radius,
        case when e.keys ->> 'cooling' = 'stepped' then nullif((e.keys ->> 'hot_zone_calls')::bigint, 0) end as calls,
        w.window_tokens
    from ai_conversation as c
    cross join lateral (
        select ($3::text::jsonb -> coalesce($4::text::jsonb ->> 'profile', c.policy ->> 'profile', ''))
            || c.policy || $4::text::jsonb as keys
    ) as e
    left join lateral (
        select max(after_message_id) as separator from ai_separator
        where conversation_id = c.conversation_id
    ) as s on true
    left join lateral (
        select last_message_id, summary, token_usage, generation from ai_conversation_checkpoint
        where conversation_id = c.conversation_id
          and first_message_id = coalesce(s.separator, 0) + 1
        order by last_message_id desc
        limit 1
    ) as k on true
    -- offset 0: an optimisation fence. `->>` is not leakproof, so under row-level security an
    -- expression with it cannot be an index condition; the column `named.model` can.
    cross join lateral (select e.keys ->> 'model' as model offset 0) as named
    left join ai_model as w
      on w.tenant_id = c.tenant_id
     and w.model = named.model
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select 0::bigint as "message_id!", null::smallint as "role?", turn as "turn!", coalesce(token_usage, 0) as "tokens!",
    system_prompt_tokens as "bytes?", null::text as "tool_outline?", policy::text as "policy?", encoding as "encoding?",
    last_message_id as "newest?", separator as "separator?", checkpoint_last as "checkpoint_last?", summary as "summary?",
    generation as "generation?", window_tokens as "window_tokens?"
from head
union all
select m.message_id, m.role, m.turn,
    case
        when m.large and m.summary_tokens is not null and (h.turn - m.turn > h.radius or m.calls_after > h.calls)
            then m.summary_tokens
        else m.tokens
    end,
    case
        when m.large and m.summary_tokens is not null then octet_length(m.summary_cache)
        else coalesce(m.content_bytes, octet_length(m.content::text))
    end::bigint,
    m.tool_outline::text, null, null, null, null, null, null, null, null
from head as h
cross join lateral (
    select message_id, role, turn, content_bytes, content, tool_outline, summary_cache, summary_tokens, coalesce(token_count, token_estimate) as tokens,
        coalesce(token_count > h.large, false) as large, count(*) filter (where role = 2) over later as calls_after
    from ai_message
    where tenant_id = $1
      and conversation_id = h.conversation_id
      and message_id > h.boundary
    window later as (order by message_id desc rows between unbounded preceding and 1 preceding)
) as m
