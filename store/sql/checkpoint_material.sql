-- What a checkpoint is planned from, in one snapshot: a head row (message_id 0: settings, previous summary), then the tail
-- without content. $3, $4: the server's large_message_threshold and hot_zone_radius.
with head as (
    select c.conversation_id, c.last_message_id, c.turn, c.policy, c.encoding, s.separator,
        k.last_message_id as checkpoint_last, k.summary, k.token_usage, k.generation,
        coalesce((c.policy ->> 'large_message_threshold')::bigint, $3) as large,
        coalesce((c.policy ->> 'hot_zone_radius')::bigint, $4) as radius
    from ai_conversation as c
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
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select 0::bigint as "message_id!", null::smallint as "role?", turn as "turn!", coalesce(token_usage, 0) as "tokens!",
    null::bigint as "bytes?", null::text as "tool_outline?", policy::text as "policy?", encoding as "encoding?",
    last_message_id as "newest?", separator as "separator?", checkpoint_last as "checkpoint_last?", summary as "summary?",
    generation as "generation?"
from head
union all
select m.message_id, m.role, m.turn,
    case
        when m.token_count > h.large and h.turn - m.turn > h.radius and m.summary_tokens is not null
            then m.summary_tokens
        else coalesce(m.token_count, m.token_estimate)
    end,
    case when m.token_count > h.large and m.summary_tokens is not null then 0 else m.text_bytes end,
    m.tool_outline::text, null, null, null, null, null, null, null
from head as h
join ai_message as m
  on m.tenant_id = $1
 and m.conversation_id = h.conversation_id
 and m.message_id > greatest(coalesce(h.separator, 0), coalesce(h.checkpoint_last, 0))
