-- Appends to conversations, each append to a different one. One statement, and so one transaction,
-- gives ids under the row locks, stores the messages, and enqueues counting jobs. Rows are locked
-- in the order of ids. SKIP LOCKED: one locked conversation must not block the batch.
-- append_one.sql does the same for one append.
--
-- The result has a row for each append that was stored or refused. The other conversations are not
-- the caller's, or another transaction holds them or has just changed them. Without a before_id the
-- append was refused: the newest message is not the expected one, or the append has tool messages
-- and the policy keeps none, or the request id is known.
--
-- The messages of an append are stored counted if the caller has counted them in the conversation's
-- encoding, and if all messages before them are counted. A job is enqueued if they are not, or if a
-- trigger may be reached: the trigger bounds (the columns that begin with quiet_) are unknown, or
-- were computed under other settings or another window, or no longer hold. Bounds that do not hold
-- are cleared, so that the job reads the tail.
--
-- Parameters:
-- - $1 to $18: columns with one entry per append. $1: tenant, $2: conversation, $9: the newest
--   message that is expected, or null, $10: the request id, or null, $11: whether there are tool
--   messages, $13: the trace context, $16: bytes of the content, $17 and $18: the digest of the
--   request and the number of messages, or null if there is no request id. The others are named in
--   `ask`: starts_after_user and starts_otherwise are how many turns start within the append if the
--   newest message is a user's, and if it is not. counted_in is the encoding in which the messages
--   are counted, or null, and largest are the tokens of the largest one. A conversation that has no
--   title, and was not given an empty one, gets the title of the append. A job that waits already
--   gets the trace context of the newest append.
-- - $19: names of the profiles that keep no tool messages, '' for no profile.
-- - $20: seconds by which listed_ts may lag behind the last activity before it is changed.
-- - $21: the kind of the counting job.
-- - $22: the fingerprint of the settings, which quiet_rules stores.
-- - $23 to $33: columns with one entry per message: $23: the position of its append, then those
--   named in `number` and `new`. place is its position in the append, starts_after is how many turns
--   start after it within the append. o200k_tokens and cl100k_tokens are counts in the encoding
--   counted_in of the append, and estimates otherwise.
--
-- Values are read from the arrays by position where they are needed: a table of all of them would
-- be copied from each part of the statement to the next. Texts and nullable values of messages are
-- a table (`new`), because finding one of them in an array takes time in proportion to its position.
--
-- `locked` are the appends whose conversations are locked, `accepted` those among them that are
-- stored. `is true` keeps conditions on the tenant out of index conditions, so that a conversation
-- is found by its primary key in every plan. The update finds it by its row_id. If another
-- transaction has changed the row since the statement began, that is the new version's, which the
-- statement does not see: then nothing is stored, and the append has no row in the result.
with locked as materialized (
    select ask.place, c.row_id, c.refused
    from (
        select tenant_id, conversation_id, place::integer
        from unnest($1::uuid[], $2::uuid[]) with ordinality as ask (tenant_id, conversation_id, place)
        order by conversation_id
    ) as ask
    cross join lateral (
        select ctid as row_id, (
            (last_message_id <> ($9::bigint[])[ask.place]) is true
            or ($11::boolean[])[ask.place] and coalesce(policy ->> 'store_tool_messages' = 'false',
                coalesce(policy ->> 'profile', '') = any ($19::text[]))
            or ($10::text[])[ask.place] is not null and (
                exists (
                    select from ai_message
                    where conversation_id = ask.conversation_id
                      and request_id = ($10::text[])[ask.place]
                ) or has_empty_appends and exists (
                    select from ai_request
                    where conversation_id = ask.conversation_id
                      and method = 'append_messages'
                      and request_id = ($10::text[])[ask.place]
                )
            )
        ) as refused
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
            when c.listed_ts <= now() - $20::integer * interval '1 second' then greatest(c.last_activity_ts, now())
            else c.listed_ts
        end,
        -- Messages that are not counted leave the bounds to their job.
        quiet_message_id = case
            when (ask.counted_in = c.encoding and c.counted_message_id = c.last_message_id) is not true
                or c.quiet_rules = $22::bigint
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
    from locked
    cross join lateral (
        select ($3::bigint[])[place] as messages, ($4::smallint[])[place] as last_role,
            ($5::integer[])[place] as starts_after_user, ($6::integer[])[place] as starts_otherwise,
            ($7::bigint[])[place] as o200k_tokens, ($8::bigint[])[place] as cl100k_tokens,
            ($12::text[])[place] as title, ($14::smallint[])[place] as counted_in, ($15::bigint[])[place] as largest
    ) as ask
    where c.ctid = locked.row_id
      and not locked.refused
    returning locked.place, c.tenant_id, c.conversation_id, c.last_message_id - ask.messages as before_id, c.turn,
        c.encoding, c.counted_message_id = c.last_message_id as counted,
        c.counted_message_id < c.last_message_id or c.quiet_message_id is null as has_work
), stored as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes, content_bytes,
        content, content_digest, tool_outline, metadata, request_id, request_digest, request_messages
    )
    select accepted.tenant_id, accepted.conversation_id, accepted.before_id + number.place, number.role,
        accepted.turn - number.starts_after,
        case when accepted.encoding = 1 then number.o200k_tokens else number.cl100k_tokens end,
        case
            when not accepted.counted then null
            when accepted.encoding = 1 then number.o200k_tokens
            else number.cl100k_tokens
        end,
        number.text_bytes, octet_length(new.content), new.content::json, new.content_digest, new.tool_outline::json,
        new.metadata::jsonb,
        -- The first message of an append carries the append's request id.
        case when number.place = 1 then ($10::text[])[accepted.place] end,
        case when number.place = 1 then ($17::bytea[])[accepted.place] end,
        case when number.place = 1 then ($18::smallint[])[accepted.place] end
    from accepted
    join unnest($30::text[], $31::bytea[], $32::text[], $33::text[])
        with ordinality as new (content, content_digest, tool_outline, metadata, item)
      on ($23::integer[])[new.item] = accepted.place
    cross join lateral (
        select ($24::bigint[])[item] as place, ($25::smallint[])[item] as role,
            ($26::integer[])[item] as starts_after, ($27::bigint[])[item] as o200k_tokens,
            ($28::bigint[])[item] as cl100k_tokens, ($29::bigint[])[item] as text_bytes
    ) as number
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id, trace_context)
    select tenant_id, $21::smallint, conversation_id, ($13::text[])[place] from accepted
    where has_work
    order by conversation_id
    on conflict (kind, conversation_id) do update set
        generation = j.generation + 1,
        trace_context = excluded.trace_context
), used as (
    insert into tenant_usage_part as u (tenant_id, part, messages, content_bytes)
    select tenant_id, pg_backend_pid() % 64, sum(($3::bigint[])[place]), sum(($16::bigint[])[place]) from accepted
    where counted
    group by tenant_id
    -- Parts of several tenants are locked in the order of tenants, so that there is no deadlock.
    order by tenant_id
    on conflict (tenant_id, part) do update set
        messages = u.messages + excluded.messages,
        content_bytes = u.content_bytes + excluded.content_bytes
)
select place as "place!", before_id as "before_id?", turn as "turn?", encoding as "encoding?", has_work as "has_work?"
from accepted
union all
select place, null, null, null, null from locked where refused
