-- Figures of one conversation ($1), all from one snapshot. audit.rs checks that they agree, which
-- they must at every moment, also while processes run or die.
select c.last_message_id, c.token_total, m.messages, m.last, m.tokens, m.misplaced, m.wrong_digests, m.high_turns,
    f.checkpoints, f.wrong_source_digests, f.wrong_ranges, f.siblings
from ai_conversation as c
cross join lateral (
    select count(*) as messages, coalesce(max(message_id), 0) as last,
        coalesce(sum(coalesce(token_count, token_estimate)), 0)::bigint as tokens,
        count(*) filter (where (token_count is not null) <> (message_id <= c.counted_message_id)) as misplaced,
        count(*) filter (where sha256(convert_to(content::text, 'UTF8')) <> content_digest) as wrong_digests,
        count(*) filter (where turn > c.turn) as high_turns
    from ai_message
    where conversation_id = c.conversation_id
) as m
cross join lateral (
    select count(*) as checkpoints,
        count(*) filter (where k.source_digest is distinct from (
            -- As in core/src/digest.rs: each id, then the length of the content digest, then the digest.
            select sha256(string_agg(
                int8send(message_id) || int8send(length(content_digest)::bigint) || content_digest, ''::bytea
                order by message_id
            ))
            from ai_message
            where conversation_id = k.conversation_id
              and message_id between k.source_first_message_id and k.last_message_id
        )) as wrong_source_digests,
        -- A checkpoint of generation 1 that has a predecessor was made from the messages again. It
        -- covers the whole chain, from first_message_id.
        count(*) filter (where k.last_message_id > c.last_message_id or (
            k.source_first_message_id <> coalesce(k.previous_message_id + 1, k.first_message_id)
            and not (k.generation = 1 and k.source_first_message_id = k.first_message_id)
        )) as wrong_ranges,
        count(*) - count(distinct (k.first_message_id, coalesce(k.previous_message_id, 0))) as siblings
    from ai_conversation_checkpoint as k
    where k.conversation_id = c.conversation_id
) as f
where c.conversation_id = $1
