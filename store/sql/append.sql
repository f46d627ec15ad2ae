-- Appends to conversations, each append to a different one. One statement, and so one transaction,
-- gives ids under the row locks, stores the messages and enqueues the counting jobs. Rows are
-- locked in the order of ids. SKIP LOCKED: one locked conversation must not block the batch.
--
-- The result for an append:
-- - No row: its conversation was not locked, because it is not the caller's or because another
--   transaction holds it.
-- - One row, with nulls: its conversation was locked, but the append was not stored. The newest
--   message is not the expected one, or the append has tool messages and the policy keeps none, or
--   the request id is known.
-- - Two rows, one with nulls and one without: the append was stored.
--
-- Parameters:
-- - $1 to $12: columns with one entry per append, named in `ask`. starts_after_user and
--   starts_otherwise are how many turns start within the append if the newest message is a user's,
--   and if it is not. A conversation that has no title, and was not given an empty one, gets the
--   title of the append.
-- - $13: the server's settings by profile.
-- - $14: seconds by which listed_ts may lag behind the last activity.
-- - $15 to $28: columns with one entry per message, named in `new`. append_place is the position of
--   its append, place is its position in the append, starts_after is how many turns start after it
--   within the append.
-- - $29: the kind of the counting job.
-- - $30: the trace context of each append, another column of `ask`. A job that waits already gets
--   that of the newest append.
--
-- `locked` are the appends whose conversations are locked, `accepted` those among them that are
-- stored. `is true` keeps conditions on the tenant out of index conditions, so that a conversation
-- is found by its primary key in every plan.
with ask as materialized (
    select tenant_id, conversation_id, messages, last_role, starts_after_user, starts_otherwise, o200k_estimate,
        cl100k_estimate, expected_last, request_id, tools, title, trace_context, place
    from unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::smallint[], $5::integer[], $6::integer[], $7::bigint[], $8::bigint[],
        $9::bigint[], $10::text[], $11::boolean[], $12::text[], $30::text[]
    ) with ordinality as ask (
        tenant_id, conversation_id, messages, last_role, starts_after_user, starts_otherwise, o200k_estimate,
        cl100k_estimate, expected_last, request_id, tools, title, trace_context, place
    )
    order by conversation_id
), locked as materialized (
    select ask.*, c.known
    from ask
    cross join lateral (
        select ask.request_id is not null and (
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
        ) as known
        from ai_conversation
        where conversation_id = ask.conversation_id
          and (tenant_id = ask.tenant_id) is true
        for no key update skip locked
    ) as c
), accepted as (
    update ai_conversation as c
    set last_message_id = c.last_message_id + ask.messages,
        last_role = ask.last_role,
        turn = c.turn + case when c.last_role = 1 then ask.starts_after_user else ask.starts_otherwise end,
        token_total = c.token_total + case when c.encoding = 1 then ask.o200k_estimate else ask.cl100k_estimate end,
        title = case when c.title_given or c.title <> '' then c.title else coalesce(ask.title, '') end,
        -- greatest: the time of the last activity never goes back. now() can be earlier than the
        -- stored time, if this transaction began earlier or if the clock was set back.
        last_activity_ts = greatest(c.last_activity_ts, now()),
        listed_ts = case
            when c.listed_ts <= now() - $14::integer * interval '1 second' then greatest(c.last_activity_ts, now())
            else c.listed_ts
        end
    from locked as ask
    where c.conversation_id = ask.conversation_id
      and (c.tenant_id = ask.tenant_id) is true
      and not ask.known
      and (ask.expected_last is null or c.last_message_id = ask.expected_last)
      and (not ask.tools or coalesce(c.policy ->> 'store_tool_messages',
          $13::text::jsonb -> coalesce(c.policy ->> 'profile', '') ->> 'store_tool_messages') is distinct from 'false')
    returning ask.place, ask.trace_context, c.tenant_id, c.conversation_id,
        c.last_message_id - ask.messages as before_id, c.turn, c.encoding
), stored as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content_bytes, content,
        content_digest, tool_outline, metadata, request_id, request_digest, request_messages
    )
    select accepted.tenant_id, accepted.conversation_id, accepted.before_id + new.place, new.role,
        accepted.turn - new.starts_after,
        case when accepted.encoding = 1 then new.o200k_estimate else new.cl100k_estimate end, new.text_bytes,
        octet_length(new.content), new.content::json, new.content_digest, new.tool_outline::json, new.metadata::jsonb,
        new.request_id, new.request_digest, new.request_messages
    from accepted
    join unnest(
        $15::bigint[], $16::bigint[], $17::smallint[], $18::integer[], $19::bigint[], $20::bigint[], $21::bigint[],
        $22::text[], $23::bytea[], $24::text[], $25::text[], $26::text[], $27::bytea[], $28::smallint[]
    ) as new (
        append_place, place, role, starts_after, o200k_estimate, cl100k_estimate, text_bytes, content, content_digest,
        tool_outline, metadata, request_id, request_digest, request_messages
    ) on new.append_place = accepted.place
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id, trace_context)
    select tenant_id, $29::smallint, conversation_id, trace_context from accepted
    order by conversation_id
    on conflict (kind, conversation_id) do update set
        generation = j.generation + 1,
        trace_context = excluded.trace_context
)
select place as "place!", null::bigint as "before_id?", null::integer as "turn?", null::smallint as "encoding?" from locked
union all
select place, before_id, turn, encoding from accepted
