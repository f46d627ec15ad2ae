-- One message. "bytes" are the bytes of its content and summary. If they exceed $4, content and
-- summary are null.
select m.message_id as "message_id!", m.role as "role!", m.turn as "turn!",
    coalesce(m.token_count, m.token_estimate) as "tokens!", m.token_count is null as "estimated!",
    m.text_bytes as "text_bytes!", case when size.bytes <= $4::bigint then m.content::text end as "content?: StoredText", m.metadata::text as "metadata?",
    case when size.bytes <= $4::bigint then m.summary_cache end as "summary?", m.summary_tokens as "summary_tokens?", m.summary_kind as "summary_kind?",
    m.summary_model as "summary_model?", (extract(epoch from m.summary_ts) * 1000000)::bigint as "summary_us?",
    (extract(epoch from m.created_ts) * 1000000)::bigint as "created_us!",
    coalesce(m.version, 1) as "version!", (extract(epoch from m.edited_ts) * 1000000)::bigint as "edited_us?",
    (extract(epoch from m.withdrawn_ts) * 1000000)::bigint as "withdrawn_us?", coalesce(m.stopped, false) as "stopped!",
    size.bytes as "bytes!"
from ai_message as m
cross join lateral (
    -- offset 0: an optimization fence, so that content without content_bytes is measured once.
    select coalesce(m.content_bytes, octet_length(m.content::text))::bigint
        + coalesce(octet_length(m.summary_cache), 0) as bytes
    offset 0
) as size
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
