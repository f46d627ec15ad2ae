-- The rows from which a checkpoint is planned, in one snapshot. The head row (message_id 0) has the
-- conversation's own values and the newest valid checkpoint; its "bytes" are the tokens of the
-- system prompt, its "tokens" those of the checkpoint's summary. The other rows are the messages of
-- the tail that stand, without content: "tokens" is what a context sends of the message after all
-- due swaps (a cool large message is sent as its summary, although stepped cooling may swap it
-- later), "bytes" is what a summarizer would read of it. $3: the server's settings by profile. $4:
-- the overrides of a preview, otherwise an empty object.
with head as (
    select c.conversation_id, c.last_message_id, c.turn, c.policy, c.encoding, c.system_prompt_tokens, b.separator,
        b.checkpoint_last, b.boundary, b.summary, b.summary_tokens, b.generation,
        (e.keys ->> 'large_message_threshold')::bigint as large_threshold,
        (e.keys ->> 'hot_zone_radius')::bigint as radius,
        case when e.keys ->> 'cooling' = 'stepped' then nullif((e.keys ->> 'hot_zone_calls')::bigint, 0) end as hot_calls,
        w.window_tokens
    from ai_conversation as c
    cross join lateral (
        select ($3::text::jsonb -> coalesce($4::text::jsonb ->> 'profile', c.policy ->> 'profile', ''))
            || c.policy || $4::text::jsonb as keys
    ) as e
    cross join lateral context_boundary(c.conversation_id) as b
    -- offset 0: an optimization fence. `->>` is not leakproof, so under row-level security an
    -- expression with it cannot be an index condition; the column `named.model` can.
    cross join lateral (select e.keys ->> 'model' as model offset 0) as named
    left join ai_model as w
      on w.tenant_id = c.tenant_id
     and w.model = named.model
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select 0::bigint as "message_id!", null::smallint as "role?", turn as "turn!", coalesce(summary_tokens, 0) as "tokens!",
    system_prompt_tokens as "bytes?", null::text as "tool_outline?", policy::text as "policy?", encoding as "encoding?",
    last_message_id as "newest?", separator as "separator?", checkpoint_last as "checkpoint_last?", summary as "summary?",
    generation as "generation?", window_tokens as "window_tokens?"
from head
union all
select m.message_id, m.role, m.turn,
    case
        when m.large and m.summary_tokens is not null and (h.turn - m.turn > h.radius or m.calls_after > h.hot_calls)
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
        coalesce(token_count > h.large_threshold, false) as large,
        count(*) filter (where role = 2) over later as calls_after
    from ai_message
    where tenant_id = $1
      and conversation_id = h.conversation_id
      and message_id > h.boundary
      and withdrawn_ts is null
    window later as (order by message_id desc rows between unbounded preceding and 1 preceding)
) as m
