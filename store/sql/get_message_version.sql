-- One version ($4) of a message: the one that stands, or one that was replaced or withdrawn. "bytes"
-- are the bytes of its content and, if it stands, of its summary. If they exceed $5, content and
-- summary are null.
select m.message_id as "message_id!", m.role as "role!", m.turn as "turn!", v.tokens as "tokens!",
    v.is_estimated as "estimated!", v.text_bytes as "text_bytes!",
    case when size.bytes <= $5::bigint then v.content::text end as "content?: StoredText", v.metadata::text as "metadata?",
    case when v.stands and size.bytes <= $5 then m.summary_cache end as "summary?", m.summary_tokens as "summary_tokens?",
    m.summary_kind as "summary_kind?", m.summary_model as "summary_model?",
    (extract(epoch from m.summary_ts) * 1000000)::bigint as "summary_us?",
    (extract(epoch from m.created_ts) * 1000000)::bigint as "created_us!",
    $4::integer as "version!",
    case when $4 > 1 then (extract(epoch from v.created_ts) * 1000000)::bigint end as "edited_us?",
    (extract(epoch from m.withdrawn_ts) * 1000000)::bigint as "withdrawn_us?", coalesce(m.stopped, false) as "stopped!",
    size.bytes as "bytes!"
from ai_message as m
cross join lateral (
    select true as stands, coalesce(m.token_count, m.token_estimate) as tokens, m.token_count is null as is_estimated,
        m.text_bytes, m.content_bytes, m.content, m.metadata, coalesce(m.edited_ts, m.created_ts) as created_ts
    where m.withdrawn_ts is null
      and coalesce(m.version, 1) = $4
    union all
    (
        select false, coalesce(token_count, token_estimate), token_count is null, text_bytes, content_bytes, content,
            metadata, created_ts
        from ai_message_version
        where tenant_id = $1
          and conversation_id = $2
          and message_id = $3
          and version = $4
        limit 1
    )
) as v
cross join lateral (
    -- offset 0: an optimization fence, so that content without content_bytes is measured once.
    select coalesce(v.content_bytes, octet_length(v.content::text))::bigint
        + case when v.stands then coalesce(octet_length(m.summary_cache), 0) else 0 end as bytes
    offset 0
) as size
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = $3
