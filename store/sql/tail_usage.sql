-- Figures of a conversation's tail: tokens as a context would send them, messages, what is swapped, what lacks a summary.
-- $3 and $4 are the server's large_message_threshold and hot_zone_radius, which the conversation may override.
with head as (
    select c.conversation_id, c.last_message_id, c.stalled_message_id, c.turn, c.policy, c.encoding, c.system_prompt_tokens,
        s.separator, k.last_message_id as checkpoint_last, k.token_usage as summary_tokens,
        coalesce((c.policy ->> 'large_message_threshold')::bigint, $3) as large,
        coalesce((c.policy ->> 'hot_zone_radius')::bigint, $4) as radius
    from ai_conversation as c
    left join lateral (
        select max(after_message_id) as separator from ai_separator
        where conversation_id = c.conversation_id
    ) as s on true
    left join lateral (
        select last_message_id, token_usage from ai_conversation_checkpoint
        where conversation_id = c.conversation_id
          and first_message_id = coalesce(s.separator, 0) + 1
        order by last_message_id desc
        limit 1
    ) as k on true
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select h.last_message_id as "last_message_id!", h.stalled_message_id as "stalled_message_id!",
    h.policy::text as "policy!", h.encoding as "encoding!", h.system_prompt_tokens as "system_prompt_tokens!", h.separator, h.checkpoint_last as "checkpoint_last?",
    h.summary_tokens as "summary_tokens?",
    coalesce(t.tokens, 0)::bigint as "tail_tokens!", t.messages as "tail_messages!", t.swapped_ids as "swapped_ids!",
    t.swapped_roles as "swapped_roles!", t.swapped_bytes as "swapped_bytes!", t.swapped_outlines as "swapped_outlines!",
    coalesce(t.saved, 0)::bigint as "saved!", t.unsummarized as "unsummarized!", t.estimated as "estimated!"
from head as h
cross join lateral (
    select count(*) as messages,
        sum(case when swap then summary_tokens else coalesce(token_count, token_estimate) end) as tokens,
        coalesce(array_agg(message_id order by message_id) filter (where swap), '{}') as swapped_ids,
        coalesce(array_agg(role order by message_id) filter (where swap), '{}') as swapped_roles,
        coalesce(array_agg(text_bytes order by message_id) filter (where swap), '{}') as swapped_bytes,
        coalesce(array_agg(coalesce(tool_outline::text, '[]') order by message_id) filter (where swap), '{}')
            as swapped_outlines,
        sum(token_count - summary_tokens) filter (where swap) as saved,
        count(*) filter (where token_count > h.large and summary_ts is null) as unsummarized,
        count(*) filter (where token_count is null) as estimated
    from (
        select message_id, role, text_bytes, tool_outline, token_count, token_estimate, summary_tokens, summary_ts,
            token_count > h.large and h.turn - turn > h.radius and summary_tokens is not null as swap
        from ai_message
        where tenant_id = $1
          and conversation_id = h.conversation_id
          and message_id > greatest(coalesce(h.separator, 0), coalesce(h.checkpoint_last, 0))
    ) as m
) as t
