-- A page of checkpoints of a conversation, newest boundary first. The page starts after the
-- checkpoint with the last message $3 and the first message $4; null: with the newest one. $5: only
-- those of this request id; null: all. At most $6 checkpoints, whose summaries have together at
-- most $7 bytes, except that the first one may have any size. "found" is how many checkpoints the
-- page would have without the limit of bytes. A checkpoint is valid if it begins with the first
-- message after the last separator.
select k.first_message_id as "first_message_id!", k.last_message_id as "last_message_id!", k.summary as "summary!",
    k.token_usage as "token_usage!", k.kind as "kind!", k.model as "model!", k.prompt_version as "prompt_version!",
    k.source_first_message_id as "source_first_message_id!", k.source_digest as "source_digest!",
    k.tokens_before as "tokens_before!", k.tokens_after as "tokens_after!", k.generation as "generation!",
    k.trigger_kind as "trigger_kind!", k.focus as "focus!", k.model_calls as "model_calls!",
    k.input_tokens as "input_tokens!", k.output_tokens as "output_tokens!", k.duration_ms as "duration_ms!",
    (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!",
    k.first_message_id = coalesce(
        (select max(after_message_id) from ai_separator where conversation_id = k.conversation_id), 0
    ) + 1 as "valid!", k.found as "found!"
from (
    select candidate.*, sum(octet_length(summary)) over newest as page_bytes, row_number() over newest as place,
        count(*) over () as found
    from (
        select conversation_id, first_message_id, last_message_id, summary, token_usage, kind, model, prompt_version,
            source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
            model_calls, input_tokens, output_tokens, duration_ms, created_ts
        from ai_conversation_checkpoint
        where tenant_id = $1
          and conversation_id = $2
          and ($3::bigint is null or (last_message_id, first_message_id) < ($3, $4::bigint))
          and ($5::text is null or request_id = $5)
        order by last_message_id desc, first_message_id desc
        limit $6
    ) as candidate
    window newest as (order by last_message_id desc, first_message_id desc)
) as k
where k.place = 1
   or k.page_bytes <= $7::bigint
order by k.last_message_id desc, k.first_message_id desc
