-- The rows from which BuildContext builds a context, in one snapshot.
--
-- The head row (message_id 0, the only one with "head") has the conversation's own values, the last
-- separator, the newest valid checkpoint, the newest recorded version of the context's beginning,
-- what is learnt about the model, and the bytes of the tail. Its "stored" is the present time.
--
-- The other rows are the messages of the tail, in no order:
-- - A message that is sent as its summary comes with "summary", without its content, which is then
--   not even read from its TOAST table. With strict cooling these are the large, cool messages that
--   have a summary, with stepped cooling those that an earlier step has swapped.
-- - A large message that a step may swap now comes with content and summary.
-- - Any other message comes with its content. That of a withdrawn message is [].
-- - "stored": the time when the message was stored.
--
-- The bytes of the tail are those of the text that these rows have (content, or summary and tool
-- outline, or content and summary), and 512 bytes for each row (ROW_BYTES). They are null if the
-- tail is empty. If they exceed $9, only the head row is returned.
--
-- The settings in the parameters are the server's: it knows the profiles, and merging the settings
-- here would take 7 % of the statement's time. They depend on the policy that is stored with the
-- conversation, and were made from the policy $5. If another one is stored, only the head row is
-- returned, without the bytes of the tail. The server then makes new settings and asks again.
--
-- - $3: the turn before which messages are cool, minus the newest message's turn, if the newest
--   message is a user's. $4: the same if it is not.
-- - $6: a message with more tokens is large. $7: whether cooling is stepped. $8: the model.
-- - $10, $11: messages up to $10 are not returned, except $11, because newer ones fill the content
--   limit (context_left_out.sql). Both are 0 for nearly every context.
--
-- Half of the time for a tail of 50 messages goes into the start of the statement. Each function,
-- each column of each join and each table adds to it, whether they are used or not. Therefore the
-- values of a table that the server only passes on are one record.
--
-- offset 0 is an optimization fence: a record is made where its table is scanned, so that the joins
-- carry one column. A fence also makes `boundary` a column of the joined query: under row-level
-- security the expression that computes it could not be an index condition.
with head as materialized (
    select c.conversation_id, c.conversation, c.cool_turn, b.boundary, b.checkpoint, p.prefix, p.swapped_message_ids,
        case when c.policy_holds then (
            -- An integer, because sum() of integers is a bigint. sum() of bigints is a numeric,
            -- which is slower.
            select sum(
                case
                    when summary_tokens is null then coalesce(content_bytes, octet_length(content::text))
                    when case
                        when $7::boolean then message_id = any (p.swapped_message_ids)
                        else token_count > $6::bigint and turn < c.cool_turn
                    end then octet_length(summary_cache) + coalesce(octet_length(tool_outline::text), 0)
                    else coalesce(content_bytes, octet_length(content::text))
                        + case when $7::boolean and token_count > $6::bigint then octet_length(summary_cache) else 0 end
                end + 512
            )
            from ai_message
            where tenant_id = $1
              and conversation_id = $2
              and message_id > b.boundary
        ) end as bytes
    from (
        select conversation_id,
            row (last_message_id, last_role, turn, encoding, system_prompt_tokens, system_prompt, policy::text, change_id)
                as conversation,
            turn + case when last_role = 1 then $3::bigint else $4::bigint end as cool_turn,
            policy::text = $5::text as policy_holds
        from ai_conversation
        where tenant_id = $1
          and conversation_id = $2
        offset 0
    ) as c
    cross join (
        select boundary, row (separator, checkpoint_last, summary, summary_tokens, saved_tokens) as checkpoint
        from context_boundary($2)
        offset 0
    ) as b
    left join (
        select swapped_message_ids,
            row (
                row (
                    epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_ids, cut, reason,
                    broken_message_id, change_epoch
                ),
                row (model, tools_digest, options_digest)
            ) as prefix
        from ai_context_prefix
        where conversation_id = $2
        order by epoch desc
        limit 1
    ) as p on true
)
select 0::bigint as "message_id!", 0::smallint as "role!", 0::integer as "turn!", 0::bigint as "tokens!", false as "estimated!",
    null::json as "content?: StoredText", null::record as "summary?: SummaryColumns", now() as "stored!: StoredTime",
    row (
        conversation, checkpoint, prefix, bytes,
        (select row (window_tokens, tokens_ratio) from ai_model where tenant_id = $1 and model = $8::text)
    ) as "head?: Head"
from head
union all
select m.message_id, m.role, m.turn, coalesce(m.token_count, m.token_estimate), m.token_count is null,
    case when m.swap then null else m.content end,
    case when m.swap or m.ready then row (m.summary_cache, m.summary_tokens, m.text_bytes, m.tool_outline::text) end,
    m.created_ts,
    null
from head as h
cross join lateral (
    select message_id, role, turn, token_count, token_estimate, content, summary_cache, summary_tokens, text_bytes,
        tool_outline, created_ts,
        summary_tokens is not null and case
            when $7::boolean then message_id = any (h.swapped_message_ids)
            else token_count > $6::bigint and turn < h.cool_turn
        end as swap,
        $7::boolean and summary_tokens is not null and token_count > $6::bigint as ready
    from ai_message
    where tenant_id = $1
      and conversation_id = h.conversation_id
      and message_id > h.boundary
      -- is true: it must not be an index condition, which could replace that with the boundary.
      and (message_id > $10::bigint or message_id = $11::bigint) is true
) as m
where h.bytes <= $9::bigint
