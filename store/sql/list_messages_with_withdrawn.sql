-- A page of messages, oldest first, after $3. Withdrawn messages are among them, with the content
-- that they had; if it was erased, "erased" is true and they have no parts. $6: whether content is
-- read.
-- - It has at most $4 messages. All messages together have at most $5 bytes of content and
--   summaries, except that the first one may have any size.
-- - "bytes" are the bytes of content and summaries of the page up to this message. If they exceed
--   $7 (what the caller has reserved), content and summary are null.
select m.message_id as "message_id!", m.role as "role!", m.turn as "turn!",
    coalesce(v.token_count, v.token_estimate, m.token_count, m.token_estimate) as "tokens!",
    case when v.version is null then m.token_count is null else v.token_count is null end as "estimated!",
    coalesce(v.text_bytes, m.text_bytes) as "text_bytes!",
    case when $6::boolean and page.page_bytes <= $7::bigint then coalesce(v.content, m.content)::text end as "content?: StoredText",
    coalesce(v.metadata, m.metadata)::text as "metadata?",
    case when page.page_bytes <= $7::bigint then m.summary_cache end as "summary?", m.summary_tokens as "summary_tokens?", m.summary_kind as "summary_kind?",
    m.summary_model as "summary_model?", (extract(epoch from m.summary_ts) * 1000000)::bigint as "summary_us?",
    (extract(epoch from m.created_ts) * 1000000)::bigint as "created_us!",
    coalesce(m.version, 1) as "version!", (extract(epoch from m.edited_ts) * 1000000)::bigint as "edited_us?",
    (extract(epoch from m.withdrawn_ts) * 1000000)::bigint as "withdrawn_us?", coalesce(m.stopped, false) as "stopped!",
    m.withdrawn_ts is not null and v.version is null as "erased!",
    page.page_bytes::bigint as "bytes!"
from (
    select message_id, sum(bytes) over (order by message_id) as page_bytes,
        row_number() over (order by message_id) as place
    from (
        -- Messages of older versions have no content_bytes. Their content is measured here, but
        -- only up to the end of the page: for messages after it, known_bytes is enough, which is
        -- at most the header of a stored value (four bytes) above the true length.
        select message_id, summary_bytes + case
                when not $6::boolean then 0
                when content_bytes is null and bytes_before <= $5::bigint then octet_length(content::text)
                else known_bytes
            end as bytes
        from (
            select message_id, content, content_bytes, summary_bytes, known_bytes,
                coalesce(sum(summary_bytes + case when $6::boolean then known_bytes else 0 end)
                    over (order by message_id rows between unbounded preceding and 1 preceding), 0) as bytes_before
            from (
                select message_id, content, coalesce(withdrawn_bytes, content_bytes) as content_bytes,
                    coalesce(octet_length(summary_cache), 0) as summary_bytes,
                    coalesce(withdrawn_bytes, content_bytes, greatest(text_bytes, pg_column_size(content))) as known_bytes
                from (
                    select message_id, content, content_bytes, text_bytes, summary_cache,
                        case
                            when withdrawn_ts is not null then (
                                select v.content_bytes from ai_message_version as v
                                where v.tenant_id = $1
                                  and v.conversation_id = $2
                                  and v.message_id = ai_message.message_id
                                  and v.version = coalesce(ai_message.version, 1)
                            )
                        end as withdrawn_bytes
                    from ai_message
                    where tenant_id = $1
                      and conversation_id = $2
                      and message_id > $3
                    order by message_id
                    limit $4
                ) as candidate
            ) as sized
        ) as known
    ) as measured
) as page
cross join lateral (
    -- limit 1: forces a nested loop by key, here and below. Otherwise the planner may hash the whole
    -- conversation.
    select message_id, role, turn, token_count, token_estimate, text_bytes, content, metadata, summary_cache, summary_tokens,
        summary_kind, summary_model, summary_ts, created_ts, version, edited_ts, withdrawn_ts, stopped
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = page.message_id
    limit 1
) as m
left join lateral (
    select version, token_count, token_estimate, text_bytes, content, metadata
    from ai_message_version
    where tenant_id = $1
      and conversation_id = $2
      and message_id = m.message_id
      and version = coalesce(m.version, 1)
      and m.withdrawn_ts is not null
    limit 1
) as v on true
where page.place = 1 or page.page_bytes <= $5::bigint
order by m.message_id
