-- Creates the :talks conversations that pgbench appends to. Their ids end in their numbers. No number of
-- messages causes a checkpoint, as in the conversations of the benchmark that the server appends to.
insert into ai_conversation (
    tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata, system_prompt, system_prompt_tokens, policy, encoding
)
select '00000000-0000-7000-8000-000000000001', ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, '', '', '',
    false, '{}', '', 0, '{"max_message_count": 0}', 1
from generate_series(0, :talks - 1) as n;
