-- A page of checkpoints of a conversation, newest boundary first. $8: whether those are in it that no
-- longer hold; they come after the one that holds with the same messages, newest change first. The
-- page starts after the checkpoint with the last message $3, the first message $4 and the change $9
-- (null: the one that holds); $3 null: with the newest one. $5: only those of this request id; null:
-- all. At most $6 checkpoints, whose summaries have together at most $7 bytes, except that the first
-- one may have any size. "found" is how many checkpoints the page would have without the limit of
-- bytes. A checkpoint is valid if it holds and begins with the first message after the last
-- separator.
select k.first_message_id as "first_message_id!", k.last_message_id as "last_message_id!", k.summary as "summary!",
    k.token_usage as "token_usage!", k.kind as "kind!", k.model as "model!", k.prompt_version as "prompt_version!",
    k.source_first_message_id as "source_first_message_id!", k.source_digest as "source_digest!",
    k.tokens_before as "tokens_before!", k.tokens_after as "tokens_after!", k.generation as "generation!",
    k.trigger_kind as "trigger_kind!", k.focus as "focus!", k.model_calls as "model_calls!",
    k.input_tokens as "input_tokens!", k.output_tokens as "output_tokens!", k.duration_ms as "duration_ms!",
    (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!",
    k.void_change_id is null and k.first_message_id = coalesce(
        (select max(after_message_id) from ai_separator where conversation_id = k.conversation_id), 0
    ) + 1 as "valid!",
    k.void_change_id as "void_change_id?", (extract(epoch from k.void_ts) * 1000000)::bigint as "void_us?",
    k.found as "found!"
from (
    select candidate.*, sum(octet_length(summary)) over newest as page_bytes, row_number() over newest as place,
        count(*) over () as found
    from (
        (
            select conversation_id, first_message_id, last_message_id, summary, token_usage, kind, model, prompt_version,
                source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
                model_calls, input_tokens, output_tokens, duration_ms, created_ts,
                null::bigint as void_change_id, null::timestamptz as void_ts
            from ai_conversation_checkpoint
            where tenant_id = $1
              and conversation_id = $2
              and ($3::bigint is null or (last_message_id, first_message_id) < ($3, $4::bigint))
              and ($5::text is null or request_id = $5)
            order by last_message_id desc, first_message_id desc
            limit $6
        )
        union all
        (
            select conversation_id, first_message_id, last_message_id, summary, token_usage, kind, model, prompt_version,
                source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
                model_calls, input_tokens, output_tokens, duration_ms, created_ts, void_change_id, void_ts
            from ai_void_checkpoint
            where $8::boolean
              and tenant_id = $1
              and conversation_id = $2
              and ($3 is null or (last_message_id, first_message_id, void_change_id)
                  < ($3, $4, coalesce($9::bigint, 9223372036854775807)))
              and ($5 is null or request_id = $5)
            order by last_message_id desc, first_message_id desc, void_change_id desc
            limit $6
        )
        -- Descending, null comes first.
        order by last_message_id desc, first_message_id desc, void_change_id desc
        limit $6
    ) as candidate
    window newest as (order by last_message_id desc, first_message_id desc, void_change_id desc)
) as k
where k.place = 1
   or k.page_bytes <= $7::bigint
order by k.last_message_id desc, k.first_message_id desc, k.void_change_id desc
