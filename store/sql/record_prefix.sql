-- Records a new version of the beginning of a conversation's contexts. Does nothing if another call
-- has recorded a version with this number (epoch) meanwhile, if messages were changed (a mark then has
-- the number, mark_prefix.sql), or if there is no such conversation. The lock keeps the conversation
-- from being deleted meanwhile, which would leave the row behind.
insert into ai_context_prefix (
    tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id,
    swapped_message_ids, at_message_id, reason, broken_message_id, rewritten_tokens, saved_tokens, cut, change_epoch,
    model, tools_digest, options_digest
)
select c.tenant_id, c.conversation_id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
from ai_conversation as c
where c.tenant_id = $1
  and c.conversation_id = $2
for key share
on conflict (conversation_id, epoch) do nothing
