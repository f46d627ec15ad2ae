-- Appends to one conversation if its row can be locked at once: append.sql, which describes the
-- rules, for a single append. Without arrays of appends it is half of the work. Returns a row if
-- the append was stored.
--
-- Parameters:
-- - $1: tenant, $2: conversation, $3: number of messages, $4: role of the last one, $5 and $6: turns
--   that start within the append if the newest message is a user's, and if it is not, $7 and $8:
--   tokens in o200k_base and in cl100k_base, $9: the newest message that is expected, or null, $10:
--   the request id, or null, $11: whether there are tool messages, $12: title, $13: names
--   of the profiles that keep no tool messages, $14: seconds by which listed_ts may lag behind the
--   last activity.
-- - $15 to $23: columns with one entry per message, named in `new`.
-- - $24: the digest of the request, $25: the kind of the counting job, $26: its trace context, $27:
--   the encoding in which the messages are counted, or null, $28: tokens of the largest one, $29:
--   bytes of their content, $30: the fingerprint of the settings.
with accepted as (
    update ai_conversation as c
    set last_message_id = c.last_message_id + $3::bigint,
        last_role = $4::smallint,
        turn = c.turn + case when c.last_role = 1 then $5::integer else $6::integer end,
        counted_message_id = case
            when $27::smallint = c.encoding and c.counted_message_id = c.last_message_id
            then c.last_message_id + $3
            else c.counted_message_id
        end,
        token_total = c.token_total + case when c.encoding = 1 then $7::bigint else $8::bigint end,
        title = case when c.title_given or c.title <> '' then c.title else coalesce($12::text, '') end,
        last_activity_ts = greatest(c.last_activity_ts, now()),
        listed_ts = case
            when c.listed_ts <= now() - $14::integer * interval '1 second' then greatest(c.last_activity_ts, now())
            else c.listed_ts
        end,
        quiet_message_id = case
            when ($27 = c.encoding and c.counted_message_id = c.last_message_id) is not true
                or c.quiet_rules = $30::bigint
                and c.last_message_id + $3 < c.quiet_message_id
                and c.token_total + case when c.encoding = 1 then $7 else $8 end < c.quiet_token_total
                and $28::bigint <= c.quiet_large_tokens
                and (c.quiet_model is null or c.quiet_window_tokens is not distinct from (
                    select window_tokens from ai_model
                    where tenant_id = c.tenant_id
                      and model = c.quiet_model
                ))
            then c.quiet_message_id
        end
    where c.conversation_id = (
        select conversation_id from ai_conversation
        where conversation_id = $2::uuid
          and (tenant_id = $1::uuid) is true
        for no key update skip locked
    )
      and (c.tenant_id = $1) is true
      and ($9::bigint is null or c.last_message_id = $9)
      and not ($11::boolean and coalesce(c.policy ->> 'store_tool_messages' = 'false',
          coalesce(c.policy ->> 'profile', '') = any ($13::text[])))
      and ($10::text is null or not exists (
          select from ai_message
          where conversation_id = $2
            and request_id = $10
      ) and not (c.has_empty_appends and exists (
          select from ai_request
          where conversation_id = $2
            and method = 'append_messages'
            and request_id = $10
      )))
    returning c.tenant_id, c.conversation_id, c.last_message_id - $3 as before_id, c.turn, c.encoding,
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
        new.metadata::jsonb, case when new.place = 1 then $10 end,
        case when new.place = 1 and $10 is not null then $24::bytea end,
        case when new.place = 1 and $10 is not null then $3 end
    from accepted
    cross join unnest(
        $15::smallint[], $16::integer[], $17::bigint[], $18::bigint[], $19::bigint[], $20::text[], $21::bytea[], $22::text[],
        $23::text[]
    ) with ordinality as new (
        role, starts_after, o200k_tokens, cl100k_tokens, text_bytes, content, content_digest, tool_outline, metadata, place
    )
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id, trace_context)
    select tenant_id, $25::smallint, conversation_id, $26::text from accepted
    where has_work
    on conflict (kind, conversation_id) do update set
        generation = j.generation + 1,
        trace_context = excluded.trace_context
), used as (
    insert into tenant_usage_part as u (tenant_id, part, messages, content_bytes)
    select tenant_id, pg_backend_pid() % 64, $3, $29::bigint from accepted
    where counted
    on conflict (tenant_id, part) do update set
        messages = u.messages + excluded.messages,
        content_bytes = u.content_bytes + excluded.content_bytes
)
select before_id as "before_id!", turn as "turn!", encoding as "encoding!", has_work as "has_work!" from accepted
