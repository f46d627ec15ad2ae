-- Marks that the next context of a conversation differs from the newest recorded version of the
-- beginning, from message $3 on (0: from the start), because of a change with the reason $4. $5: the
-- newest message. $6: a digest of zeros, where there is no version yet.
--
-- The mark is the next version (epoch). A context that was built before the change can then not be
-- recorded under that epoch, and is built again. If the newest version is a mark as well, no context
-- was recorded since, and this one speaks for both. A mark without any version before it (epoch 1)
-- is changed in place, so that it is still known that there was none. If a context records the same
-- epoch at the same moment, its row becomes the mark.
insert into ai_context_prefix as p (
    tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id,
    swapped_message_ids, cut, at_message_id, reason, broken_message_id, rewritten_tokens, saved_tokens, change_epoch
)
select $1, $2, mark.epoch, coalesce(n.prefix_hash, $6), coalesce(n.boundary_message_id, 0),
    coalesce(n.system_prompt_digest, $6), coalesce(n.swapped_message_id, 0), coalesce(n.swapped_message_ids, '{}'),
    coalesce(n.cut, false), $5, case when n.is_mark then greatest(n.reason, $4) else $4 end,
    case when n.is_mark then least(n.broken_message_id, $3) else $3 end, 0, 0, mark.epoch
from (select 1 as one) as always
left join lateral (
    select epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id, swapped_message_ids, cut,
        reason, broken_message_id, (change_epoch = epoch) is true as is_mark
    from ai_context_prefix
    where tenant_id = $1
      and conversation_id = $2
    order by epoch desc
    limit 1
) as n on true
cross join lateral (
    select case when n.is_mark and n.epoch = 1 then 1 else coalesce(n.epoch, 0) + 1 end as epoch
) as mark
on conflict (conversation_id, epoch) do update set
    reason = excluded.reason,
    broken_message_id = excluded.broken_message_id,
    at_message_id = excluded.at_message_id,
    change_epoch = excluded.change_epoch
