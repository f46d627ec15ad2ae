-- BuildContext's material in one snapshot: a head row (message_id 0: settings, system prompt as content, the newest valid
-- checkpoint's summary), then the tail. A large cool message that has its summary comes without its content, which is
-- then not even read from its TOAST table. $3, $4: turns that the current input starts; $5, $6: server settings.
with head as (
    select c.conversation_id, c.last_message_id, c.last_role, c.turn, c.policy, c.encoding, c.system_prompt,
        c.system_prompt_tokens, s.separator, k.last_message_id as checkpoint_last, k.summary, k.token_usage,
        c.turn + case when c.last_role = 1 then $3::integer else $4::integer end as current_turn,
        coalesce((c.policy ->> 'large_message_threshold')::bigint, $5) as large,
        coalesce((c.policy ->> 'hot_zone_radius')::bigint, $6) as radius
    from ai_conversation as c
    left join lateral (
        select max(after_message_id) as separator from ai_separator
        where conversation_id = c.conversation_id
    ) as s on true
    left join lateral (
        select last_message_id, summary, token_usage from ai_conversation_checkpoint
        where conversation_id = c.conversation_id
          and first_message_id = coalesce(s.separator, 0) + 1
        order by last_message_id desc
        limit 1
    ) as k on true
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select 0::bigint as "message_id!", last_role as "role?", turn as "turn!", system_prompt_tokens as "tokens!",
    null::boolean as "estimated?", system_prompt as "content?", summary as "summary?", token_usage as "summary_tokens?",
    null::bigint as "text_bytes?", null::text as "tool_outline?", policy::text as "policy?", encoding as "encoding?",
    last_message_id as "newest?", separator as "separator?", checkpoint_last as "checkpoint_last?"
from head
union all
select m.message_id, m.role, m.turn, coalesce(m.token_count, m.token_estimate), m.token_count is null,
    case when not m.swap then m.content::text end, case when m.swap then m.summary_cache end, m.summary_tokens,
    m.text_bytes, case when m.swap then m.tool_outline::text end, null, null, null, null, null
from head as h
cross join lateral (
    select message_id, role, turn, token_count, token_estimate, content, summary_cache, summary_tokens, text_bytes,
        tool_outline,
        coalesce(token_count > h.large and h.current_turn - turn > h.radius and summary_tokens is not null, false)
        as swap
    from ai_message
    where tenant_id = $1
      and conversation_id = h.conversation_id
      and message_id > greatest(coalesce(h.separator, 0), coalesce(h.checkpoint_last, 0))
) as m
