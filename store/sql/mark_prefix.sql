-- Marks that stored messages were changed: the next context differs from the newest recorded version
-- of its beginning from message $4 on (0: every message does). Does nothing if a context has
-- recorded a version with the next number (epoch) meanwhile.
--
-- A mark takes the number of a version, so that a context that was read before the change cannot
-- record one any more. It has the values of the newest version, with which the next context is
-- compared. If the newest row is a mark, no context has been recorded since, so the new mark speaks
-- for both changes. Reason 1: no version has been recorded yet.
insert into ai_context_prefix (
    tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id,
    swapped_message_ids, at_message_id, reason, broken_message_id, rewritten_tokens, saved_tokens, cut, change_epoch,
    model, tools_digest, options_digest
)
select $1, $2, coalesce(n.epoch, 0) + 1, coalesce(n.prefix_hash, absent.digest), coalesce(n.boundary_message_id, 0),
    coalesce(n.system_prompt_digest, absent.digest), coalesce(n.swapped_message_id, 0), coalesce(n.swapped_message_ids, '{}'), $5,
    case
        when n.epoch is null or (n.is_mark and n.reason = 1) then 1
        when n.is_mark then greatest($3::smallint, n.reason)
        else $3::smallint
    end,
    case when n.is_mark then least($4::bigint, n.broken_message_id) else $4::bigint end,
    0, 0, coalesce(n.cut, false), coalesce(n.epoch, 0) + 1, n.model, n.tools_digest, n.options_digest
from (select decode(repeat('00', 32), 'hex') as digest) as absent
left join (
    select epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id, swapped_message_ids, cut, reason,
        broken_message_id, coalesce(change_epoch = epoch, false) as is_mark, model, tools_digest, options_digest
    from ai_context_prefix
    where tenant_id = $1
      and conversation_id = $2
    order by epoch desc
    limit 1
) as n on true
on conflict (conversation_id, epoch) do nothing
