-- Appends to conversations, each append to a different one. One statement, and so one transaction,
-- gives ids under the row locks, stores the messages, and enqueues counting jobs. Rows are locked
-- in the order of ids. SKIP LOCKED: one locked conversation must not block the batch.
-- append_one.sql does the same for one append, which waits for the lock.
--
-- The result has a row for each append whose conversation was locked. The other conversations are
-- not the caller's, or another transaction holds them. Without a before_id the append was not
-- stored: the newest message is not the expected one, or the append has tool messages and the
-- policy keeps none, or the request id is known.
--
-- The messages of an append are stored counted if the caller has counted them in the conversation's
-- encoding, and if all messages before them are counted. A job is enqueued if they are not, or if a
-- trigger may be reached: the trigger bounds (the columns that begin with quiet_) are unknown, or
-- were computed under other settings or another window, or no longer hold. Bounds that do not hold
-- are cleared, so that the job reads the tail.
--
-- Parameters:
-- - $1 to $12: columns with one entry per append, named in `ask`. starts_after_user and
--   starts_otherwise are how many turns start within the append if the newest message is a user's,
--   and if it is not. A conversation that has no title, and was not given an empty one, gets the
--   title of the append.
-- - $13: the server's settings by profile.
-- - $14: seconds by which listed_ts may lag behind the last activity before it is changed.
-- - $15 to $28: columns with one entry per message, named in `new`. append_place is the position of
--   its append, place is its position in the append, starts_after is how many turns start after it
--   within the append. o200k_tokens and cl100k_tokens are counts in the encoding `counted_in` of
--   the append, and estimates otherwise.
-- - $29: the kind of the counting job.
-- - $30: the trace context of each append, another column of `ask`. A job that waits already gets
--   that of the newest append.
-- - $31 to $33: more columns of `ask`: the encoding in which the messages are counted (null: they
--   are not), the tokens of the largest one, and the bytes of their content.
-- - $34: the fingerprint of the settings, which quiet_rules stores.
--
-- `locked` are the appends whose conversations are locked, `accepted` those among them that are
-- stored. `is true` keeps conditions on the tenant out of index conditions, so that a conversation
-- is found by its primary key in every plan.
with ask as materialized (
    select tenant_id, conversation_id, messages, last_role, starts_after_user, starts_otherwise, o200k_tokens,
        cl100k_tokens, expected_last, request_id, tools, title, trace_context, counted_in, largest, content_bytes, place
    from unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::smallint[], $5::integer[], $6::integer[], $7::bigint[], $8::bigint[],
        $9::bigint[], $10::text[], $11::boolean[], $12::text[], $30::text[], $31::smallint[], $32::bigint[], $33::bigint[]
    ) with ordinality as ask (
        tenant_id, conversation_id, messages, last_role, starts_after_user, starts_otherwise, o200k_tokens,
        cl100k_tokens, expected_last, request_id, tools, title, trace_context, counted_in, largest, content_bytes, place
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
            ) or has_empty_appends and exists (
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
        counted_message_id = case
            when ask.counted_in = c.encoding and c.counted_message_id = c.last_message_id
            then c.last_message_id + ask.messages
            else c.counted_message_id
        end,
        token_total = c.token_total + case when c.encoding = 1 then ask.o200k_tokens else ask.cl100k_tokens end,
        title = case when c.title_given or c.title <> '' then c.title else coalesce(ask.title, '') end,
        -- greatest: the time of the last activity never goes back. now() can be earlier than the
        -- stored time, if this transaction began earlier or if the clock was set back.
        last_activity_ts = greatest(c.last_activity_ts, now()),
        listed_ts = case
            when c.listed_ts <= now() - $14::integer * interval '1 second' then greatest(c.last_activity_ts, now())
            else c.listed_ts
        end,
        -- Messages that are not counted leave the bounds to their job.
        quiet_message_id = case
            when (ask.counted_in = c.encoding and c.counted_message_id = c.last_message_id) is not true
                or c.quiet_rules = $34::bigint
                and c.last_message_id + ask.messages < c.quiet_message_id
                and c.token_total + case when c.encoding = 1 then ask.o200k_tokens else ask.cl100k_tokens end
                    < c.quiet_token_total
                and ask.largest <= c.quiet_large_tokens
                and (c.quiet_model is null or c.quiet_window_tokens is not distinct from (
                    select window_tokens from ai_model
                    where tenant_id = c.tenant_id
                      and model = c.quiet_model
                ))
            then c.quiet_message_id
        end
    from locked as ask
    where c.conversation_id = ask.conversation_id
      and (c.tenant_id = ask.tenant_id) is true
      and not ask.known
      and (ask.expected_last is null or c.last_message_id = ask.expected_last)
      and (not ask.tools or coalesce(c.policy ->> 'store_tool_messages',
          $13::text::jsonb -> coalesce(c.policy ->> 'profile', '') ->> 'store_tool_messages') is distinct from 'false')
    returning ask.place, ask.trace_context, ask.messages, ask.content_bytes, c.tenant_id, c.conversation_id,
        c.last_message_id - ask.messages as before_id, c.turn, c.encoding,
        c.counted_message_id = c.last_message_id as counted,
        c.counted_message_id < c.last_message_id or c.quiet_message_id is null as has_work
), stored as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes, content_bytes,
        content, content_digest, tool_outline, metadata, request_id, request_digest, request_messages
    )
    select accepted.tenant_id, accepted.conversation_id, accepted.before_id + new.place, new.role,
        accepted.turn - new.starts_after,
        case when accepted.encoding = 1 then new.o200k_tokens else new.cl100k_tokens end,
        case when accepted.counted then case when accepted.encoding = 1 then new.o200k_tokens else new.cl100k_tokens end end,
        new.text_bytes, octet_length(new.content), new.content::json, new.content_digest, new.tool_outline::json,
        new.metadata::jsonb, new.request_id, new.request_digest, new.request_messages
    from accepted
    join unnest(
        $15::bigint[], $16::bigint[], $17::smallint[], $18::integer[], $19::bigint[], $20::bigint[], $21::bigint[],
        $22::text[], $23::bytea[], $24::text[], $25::text[], $26::text[], $27::bytea[], $28::smallint[]
    ) as new (
        append_place, place, role, starts_after, o200k_tokens, cl100k_tokens, text_bytes, content, content_digest,
        tool_outline, metadata, request_id, request_digest, request_messages
    ) on new.append_place = accepted.place
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id, trace_context)
    select tenant_id, $29::smallint, conversation_id, trace_context from accepted
    where has_work
    order by conversation_id
    on conflict (kind, conversation_id) do update set
        generation = j.generation + 1,
        trace_context = excluded.trace_context
), used as (
    insert into tenant_usage_part as u (tenant_id, part, messages, content_bytes)
    select tenant_id, pg_backend_pid() % 64, sum(messages), sum(content_bytes) from accepted
    where counted
    group by tenant_id
    -- Parts of several tenants are locked in the order of tenants, so that there is no deadlock.
    order by tenant_id
    on conflict (tenant_id, part) do update set
        messages = u.messages + excluded.messages,
        content_bytes = u.content_bytes + excluded.content_bytes
)
select locked.place as "place!", accepted.before_id as "before_id?", accepted.turn as "turn?",
    accepted.encoding as "encoding?", accepted.has_work as "has_work?"
from locked
left join accepted on accepted.place = locked.place
