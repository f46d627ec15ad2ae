-- pgbench's transaction, the bare append of one user message of 400 bytes: one statement updates the conversation, inserts the
-- message and enqueues the job. Like callers of the server, no two clients use the same conversation at a time: each of the
-- :clients clients has its own share of the :conversations conversations and appends to a random one of them.
\set conversation 100000000000 + :client_id + :clients * random(0, :conversations / :clients - 1)
with accepted as (
    update bare.conversation
    set last_message_id = last_message_id + 1, turn = turn + 1, token_total = token_total + 110
    where conversation_id = ('00000000-0000-7000-8000-' || :conversation)::uuid
      and tenant_id = '00000000-0000-7000-8000-000000000001'
    returning conversation_id, tenant_id, last_message_id, turn
), stored as (
    insert into bare.message (conversation_id, message_id, tenant_id, role, turn, token_estimate, content)
    select conversation_id, last_message_id, tenant_id, 1, turn, 110,
        '[{"type":"text","text":"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy "}]'::json
    from accepted
), job as (
    insert into bare.job as j (kind, conversation_id, generation)
    select 1, conversation_id, 1 from accepted
    on conflict (kind, conversation_id) do update set generation = j.generation + 1
)
select last_message_id, turn from accepted;
