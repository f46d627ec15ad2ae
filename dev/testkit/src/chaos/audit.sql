-- Figures of one conversation ($1), all from one snapshot. audit.rs checks that they agree, which
-- they must at every moment, also while processes run or die.
select c.last_message_id, c.token_total, coalesce(c.withdrawn_messages, 0) as withdrawn_messages, m.messages, m.last, m.tokens,
    m.misplaced, m.wrong_digests, m.high_turns, m.withdrawn, m.full_tombstones, m.late_summaries, f.checkpoints,
    f.late_checkpoints, f.wrong_source_digests, f.wrong_ranges, f.siblings
from ai_conversation as c
cross join lateral (
    select count(*) as messages, coalesce(max(message_id), 0) as last,
        coalesce(sum(coalesce(token_count, token_estimate)), 0)::bigint as tokens,
        count(*) filter (where (token_count is not null) <> (message_id <= c.counted_message_id)) as misplaced,
        count(*) filter (where sha256(convert_to(content::text, 'UTF8')) <> content_digest) as wrong_digests,
        count(*) filter (where withdrawn_ts is null and turn > c.turn) as high_turns,
        count(*) filter (where withdrawn_ts is not null) as withdrawn,
        -- The row of a withdrawn message has no content and no summary.
        count(*) filter (where withdrawn_ts is not null and (
            content::text <> '[]' or token_estimate <> 0 or token_count <> 0
            or coalesce(tool_outline::text, metadata::text) is not null
        )) as full_tombstones,
        count(*) filter (where withdrawn_ts is not null and summary_cache is not null or exists (
            select from ai_message_change as h
            cross join unnest(h.first_ids, h.last_ids) as run (first, last)
            where h.conversation_id = c.conversation_id
              and h.kind <= 3
              and h.change_id > ai_message.summary_change_id
              and ai_message.message_id between run.first and run.last
        )) as late_summaries
    from ai_message
    where conversation_id = c.conversation_id
) as m
cross join lateral (
    select count(*) as checkpoints,
        count(*) filter (where k.is_late) as late_checkpoints,
        count(*) filter (where not k.is_late and k.source_digest is distinct from (
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
    from (
        -- No checkpoint that holds is older than a withdrawal (kind 1), a restoration (2) or an edit
        -- (3) of a message in its range. An erasure of a withdrawn message (4) changes no summary.
        select conversation_id, first_message_id, last_message_id, previous_message_id, source_first_message_id, source_digest,
            generation, exists (
                select from ai_message_change as h
                cross join unnest(h.first_ids, h.last_ids) as run (first, last)
                where h.conversation_id = c.conversation_id
                  and h.kind <= 3
                  and h.change_id > made.change_id
                  and run.first <= made.last_message_id
                  and run.last >= made.first_message_id
            ) as is_late
        from ai_conversation_checkpoint as made
        where conversation_id = c.conversation_id
    ) as k
) as f
where c.conversation_id = $1
