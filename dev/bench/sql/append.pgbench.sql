-- pgbench's transaction: the store's append of one user message of 400 bytes with a request id, to one conversation. It does
-- the same work as store/sql/append.sql with one append: unless the request id is known, one statement locks and updates the
-- conversation, stores the message with its request id and digests, and enqueues its counting job. A test compares the rows of
-- both. Values that the server computes before its statement (digests, estimates of 110 tokens, the title) are literals here.
-- It does not lock all rows first, which only batches need. :talks is the number of conversations. Like callers of the
-- server, no two clients use the same conversation at a time: each of the :clients clients has its own share of the conversations
-- and appends to a random one of them.
\set talk :client_id + :clients * random(0, :talks / :clients - 1)
with ask as materialized (
    select ('00000000-0000-7000-8000-' || lpad(to_hex(:talk::bigint), 12, '0'))::uuid as conversation_id,
        gen_random_uuid()::text as request_id
), accepted as (
    update ai_conversation as c
    set last_message_id = c.last_message_id + 1,
        last_role = 1::smallint,
        turn = c.turn + case when c.last_role = 1 then 0 else 1 end,
        token_total = c.token_total + case when c.encoding = 1 then 110::bigint else 110::bigint end,
        title = case when c.title_given or c.title <> '' then c.title else coalesce('The quick brown fox jumps over', '') end,
        last_activity_ts = greatest(c.last_activity_ts, now()),
        listed_ts = case
            when c.listed_ts <= now() - 60 * interval '1 second' then greatest(c.last_activity_ts, now())
            else c.listed_ts
        end
    from ask
    where c.conversation_id = ask.conversation_id
      and (c.tenant_id = '00000000-0000-7000-8000-000000000001'::uuid) is true
      and not (
          exists (
              select from ai_message
              where conversation_id = ask.conversation_id
                and request_id = ask.request_id
          ) or exists (
              select from ai_request
              where conversation_id = ask.conversation_id
                and method = 'append_messages'
                and request_id = ask.request_id
          )
      )
    returning c.conversation_id, c.last_message_id - 1 as before_id, c.turn, c.encoding, ask.request_id
), stored as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content_bytes, content,
        content_digest, tool_outline, metadata, request_id, request_digest, request_messages
    )
    select '00000000-0000-7000-8000-000000000001'::uuid, accepted.conversation_id, accepted.before_id + new.place, new.role,
        accepted.turn - new.starts_after,
        case when accepted.encoding = 1 then new.o200k_estimate else new.cl100k_estimate end, new.text_bytes,
        octet_length(new.content), new.content::json, new.content_digest, new.tool_outline::json, new.metadata::jsonb,
        case when new.place = 1 then accepted.request_id end,
        case when new.place = 1 then '\x15a479ce31d667e5cfea4046b4b459f0da7a4b0ce094242066401d7696b7347c'::bytea end,
        case when new.place = 1 then 1::smallint end
    from accepted
    cross join unnest(
        array[1]::smallint[], array[0]::integer[], array[110]::bigint[], array[110]::bigint[], array[400]::bigint[],
        array['[{"type":"text","text":"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy "}]']::text[],
        array['\x9f2d7701e6923012f4af919deb6ad9c31fff2765e42d21f097f675b56f87f8c2']::bytea[],
        array[null]::text[], array[null]::text[]
    ) with ordinality as new (
        role, starts_after, o200k_estimate, cl100k_estimate, text_bytes, content, content_digest, tool_outline, metadata,
        place
    )
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id)
    select '00000000-0000-7000-8000-000000000001'::uuid, 1::smallint, accepted.conversation_id from accepted
    on conflict (kind, conversation_id) do update set generation = j.generation + 1
)
select accepted.before_id, accepted.turn, accepted.encoding from accepted;
