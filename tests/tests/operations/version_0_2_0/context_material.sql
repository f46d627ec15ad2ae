-- The rows from which BuildContext builds a context, in one snapshot.
--
-- The head row (message_id 0) has the conversation's own values, the newest valid checkpoint and
-- the newest recorded version of the context's beginning. In it, "content" is the system prompt,
-- "tokens" are the system prompt's tokens, "summary" is the checkpoint's summary, and "text_bytes"
-- are the tokens that the checkpoint saved. "read_bytes" is null only here.
--
-- The other rows are the messages of the tail, in no order:
-- - A message that is sent as its summary comes with summary and tool outline, without its content,
--   which is then not even read from its TOAST table. With strict cooling these are the large, cool
--   messages that have a summary, with stepped cooling those that an earlier step has swapped.
-- - A large message that a step may swap now comes with content and summary.
-- - Any other message comes with its content.
-- - "left_out": an old message, of which neither content nor summary nor outline is read. This is
--   so if the messages from the newest one back to it exceed $7 bytes, where each row counts 512
--   bytes (ROW_BYTES) besides its text. The newest message and the newest user message are never
--   left out.
-- - "read_bytes": bytes of the rows from the newest message back to this one, of what is read of
--   them, with 512 bytes for each row and for the head row. For messages that are left out it is an
--   upper bound: the text of all rows takes at most $9 bytes.
-- - Messages whose "read_bytes" exceed $8 are not returned, except the oldest one, as left out: its
--   "read_bytes" are the size of the whole result.
-- - "age_seconds": the time since an assistant's message was stored; null for other messages.
--
-- $3: the number of turns that the current input starts if the newest message is a user's; $4: if
-- it is not. $5: the server's settings by profile. $6: the policy overrides of the call.
with head as (
    select c.conversation_id, c.last_message_id, c.last_role, c.turn, c.policy, c.encoding, c.system_prompt,
        c.system_prompt_tokens, b.separator, b.checkpoint_last, b.boundary, b.summary, b.summary_tokens, b.saved_tokens,
        c.turn + case when c.last_role = 1 then $3::integer else $4::integer end as current_turn,
        (e.keys ->> 'large_message_threshold')::bigint as large_threshold,
        (e.keys ->> 'hot_zone_radius')::bigint as radius,
        e.keys ->> 'cooling' = 'stepped' as stepped, p.epoch, p.prefix_hash, p.boundary_message_id,
        p.system_prompt_digest, p.swapped_message_ids, p.cut, w.window_tokens, w.tokens_ratio
    from ai_conversation as c
    cross join lateral (
        select ($5::text::jsonb -> coalesce($6::text::jsonb ->> 'profile', c.policy ->> 'profile', ''))
            || c.policy || $6::text::jsonb as keys
    ) as e
    cross join lateral context_boundary(c.conversation_id) as b
    left join lateral (
        select epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_ids, cut
        from ai_context_prefix
        where conversation_id = c.conversation_id
        order by epoch desc
        limit 1
    ) as p on true
    -- offset 0: an optimization fence. `->>` is not leakproof, so under row-level security an
    -- expression with it cannot be an index condition; the column `named.model` can.
    cross join lateral (select e.keys ->> 'model' as model offset 0) as named
    left join ai_model as w
      on w.tenant_id = c.tenant_id
     and w.model = named.model
    where c.tenant_id = $1
      and c.conversation_id = $2
)
select 0::bigint as "message_id!", last_role as "role?", turn as "turn!", system_prompt_tokens as "tokens!",
    null::boolean as "estimated?", system_prompt as "content?: StoredText", summary as "summary?", summary_tokens as "summary_tokens?",
    saved_tokens as "text_bytes?", false as "left_out!", null::text as "tool_outline?", null::bigint as "read_bytes?",
    null::bigint as "age_seconds?", policy::text as "policy?",
    encoding as "encoding?", last_message_id as "newest?", separator as "separator?",
    checkpoint_last as "checkpoint_last?", epoch as "epoch?", prefix_hash as "prefix_hash?", boundary_message_id as "prefix_boundary?",
    system_prompt_digest as "prefix_system_prompt?", swapped_message_ids as "prefix_swapped?", cut as "prefix_cut?",
    window_tokens as "window_tokens?", tokens_ratio as "tokens_ratio?"
from head
union all
select m.message_id, m.role, m.turn, coalesce(m.token_count, m.token_estimate), m.token_count is null,
    case when not m.swap and not m.left_out then m.content::text end,
    case when m.summary_is_read and not m.left_out then m.summary_cache end,
    m.summary_tokens, m.text_bytes, m.left_out,
    case when m.swap and not m.left_out then m.tool_outline::text end,
    m.read_bytes, case when m.role = 2 then date_part('epoch', now() - m.created_ts)::bigint end,
    null, null, null, null, null, null, null, null, null, null, null, null, null
from head as h
cross join lateral (
    -- All window functions share one window, which PostgreSQL computes row by row. A second window
    -- over the whole tail would write the tail to a temporary file.
    select message_id, role, turn, token_count, token_estimate, content, summary_cache, summary_tokens, text_bytes,
        tool_outline, created_ts, swap, summary_is_read,
        lead(message_id) over newest is null as is_oldest,
        least(sum(bytes + 512) over newest, $9::bigint + 512 * row_number() over newest) + 512 as read_bytes,
        sum(bytes + 512) over newest > $7::bigint
                and row_number() over newest > 1
                and not (role = 1 and count(*) filter (where role = 1) over newest = 1)
            or least(sum(bytes + 512) over newest, $9::bigint + 512 * row_number() over newest) + 512 > $8::bigint
            as left_out
    from (
        select message_id, role, turn, token_count, token_estimate, content, summary_cache, summary_tokens, text_bytes,
            tool_outline, created_ts, swap, summary_is_read,
            -- An integer, because sum() of integers is a bigint. sum() of bigints is a numeric,
            -- which is slower.
            (
                case
                    when swap then coalesce(octet_length(tool_outline::text), 0)
                    else coalesce(content_bytes, octet_length(content::text))
                end
                    + case when summary_is_read then coalesce(octet_length(summary_cache), 0) else 0 end
            )::integer as bytes
        from (
            select message_id, role, turn, token_count, token_estimate, content, content_bytes, summary_cache,
                summary_tokens, text_bytes, tool_outline, created_ts, swap,
                swap or coalesce(h.stepped and token_count > h.large_threshold, false) as summary_is_read
            from ai_message
            cross join lateral (
                select coalesce(
                    summary_tokens is not null and case
                        when h.stepped then message_id = any (h.swapped_message_ids)
                        else token_count > h.large_threshold and h.current_turn - turn > h.radius
                    end, false
                ) as swap
            ) as s
            where tenant_id = $1
              and conversation_id = h.conversation_id
              and message_id > h.boundary
        ) as raw
    ) as sized
    window newest as (order by message_id desc rows unbounded preceding)
) as m
where m.read_bytes <= $8::bigint or m.is_oldest
