-- A byte range of one message's plain text: $5 bytes from $4 on, and three more on either side, so
-- that it can be widened to whole characters.
-- - The plain text is the parts' texts joined by a blank line, as plain_text makes it
--   (core/src/message.rs). The parts come in their order, because they are read by one function
--   scan, without a join or a sort.
-- - "cut" is the range, "cut_from" is where it begins in the text, "whole_bytes" is the length of
--   the text.
-- - "bytes" are the bytes of content and summary. If they exceed $6, "summary" and "cut" are null.
-- - "cut" is also null if the content contains \u0000: JSON's escape of NUL, which PostgreSQL
--   cannot store in a text. Where "cut" is null, "cut_from" and "whole_bytes" mean nothing.
select m.message_id as "message_id!", m.role as "role!", m.turn as "turn!",
    coalesce(m.token_count, m.token_estimate) as "tokens!", m.token_count is null as "estimated!",
    m.text_bytes as "text_bytes!", m.metadata::text as "metadata?",
    case when size.bytes <= $6::bigint then m.summary_cache end as "summary?", m.summary_tokens as "summary_tokens?",
    m.summary_kind as "summary_kind?", m.summary_model as "summary_model?",
    (extract(epoch from m.summary_ts) * 1000000)::bigint as "summary_us?",
    (extract(epoch from m.created_ts) * 1000000)::bigint as "created_us!",
    coalesce(m.version, 1) as "version!", (extract(epoch from m.edited_ts) * 1000000)::bigint as "edited_us?",
    (extract(epoch from m.withdrawn_ts) * 1000000)::bigint as "withdrawn_us?", coalesce(m.stopped, false) as "stopped!",
    size.bytes as "bytes!",
    whole.bytes as "whole_bytes!", bounds.start_offset as "cut_from!",
    case when readable.is_readable
        then substring(whole.plain from bounds.start_offset + 1 for bounds.end_offset - bounds.start_offset) end as "cut?"
from ai_message as m
cross join lateral (
    select coalesce(m.content_bytes, octet_length(m.content::text))::bigint
        + coalesce(octet_length(m.summary_cache), 0) as bytes
    offset 0
) as size
cross join lateral (
    select case when size.bytes <= $6::bigint then position('\u0000' in m.content::text) = 0 else false end as is_readable
    offset 0
) as readable
cross join lateral (
    select plain, octet_length(plain) as bytes
    from (
        select convert_to(coalesce(string_agg(part, E'\n\n'), ''), 'UTF8') as plain
        from (
            select case type when 'tool_use' then input when 'media' then null else text end as part
            from json_to_recordset(case when readable.is_readable then m.content else '[]'::json end)
                as parts (type text, text text, input text)
        ) as texts
        where part <> ''
    ) as joined
    offset 0
) as whole
cross join lateral (
    select greatest(least($4::bigint, whole.bytes) - 3, 0)::integer as start_offset,
        least(least($4::bigint, whole.bytes) + $5::bigint + 3, whole.bytes)::integer as end_offset
    offset 0
) as bounds
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
