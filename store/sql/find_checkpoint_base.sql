-- What the next checkpoint of a conversation can be built on: how many summaries the newest valid
-- checkpoint was built of, and the checkpoint that is prepared, if the boundary is still the one
-- with which it was planned.
select b.generation as "generation?", p.first_message_id as "first_message_id?", p.last_message_id as "last_message_id?",
    p.previous_message_id as "previous_message_id?", p.summary as "summary?", p.token_usage as "token_usage?", p.kind as "kind?",
    p.model as "model?", p.prompt_version as "prompt_version?", p.source_first_message_id as "source_first_message_id?",
    p.source_digest as "source_digest?", p.tokens_before as "tokens_before?", p.tokens_after as "tokens_after?",
    p.generation as "prepared_generation?", p.trigger_kind as "trigger_kind?", p.duration_ms as "duration_ms?",
    p.model_calls as "model_calls?", p.input_tokens as "input_tokens?", p.output_tokens as "output_tokens?"
from ai_conversation as c
cross join lateral context_boundary(c.conversation_id) as b
left join ai_prepared_checkpoint as p
  on p.tenant_id = c.tenant_id
 and p.conversation_id = c.conversation_id
 and p.first_message_id = coalesce(b.separator, 0) + 1
 and p.previous_message_id is not distinct from b.checkpoint_last
where c.tenant_id = $1
  and c.conversation_id = $2
