-- The last separator of a conversation, and the last message of its newest valid checkpoint.
select b.separator, b.checkpoint_last as "checkpoint_last?"
from ai_conversation as c
cross join lateral context_boundary(c.conversation_id) as b
where c.tenant_id = $1
  and c.conversation_id = $2
