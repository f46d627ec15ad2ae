-- A page of the content of withdrawn messages ($3) after $5, oldest first, that was withdrawn
-- before it was counted, although the conversation is counted beyond it by now. All content of the
-- page has at most $6 bytes, except that the first message may have any size. "bytes" are the bytes
-- of the page up to this message. If they exceed $4 (what the caller has reserved), content is
-- null.
select page.message_id as "message_id!", c.encoding as "encoding!",
    case when page.page_bytes <= $4::bigint then page.content::text end as "content?: StoredText",
    page.page_bytes as "bytes!"
from ai_conversation as c
cross join lateral (
    select v.message_id, v.content, sum(v.content_bytes) over (order by v.message_id)::bigint as page_bytes,
        row_number() over (order by v.message_id) as place
    from unnest((select $3::bigint[])) as asked (message_id)
    cross join lateral (
        -- limit 1: forces a nested loop by key, here and below.
        select message_id, version from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id = asked.message_id
          and withdrawn_ts is not null
        limit 1
    ) as m
    cross join lateral (
        select message_id, content, content_bytes from ai_message_version
        where tenant_id = $1
          and conversation_id = $2
          and message_id = m.message_id
          and version = coalesce(m.version, 1)
          and token_count is null
        limit 1
    ) as v
    where asked.message_id > $5
      and asked.message_id <= c.counted_message_id
) as page
where c.tenant_id = $1
  and c.conversation_id = $2
  and (page.place = 1 or page.page_bytes <= $6::bigint)
order by page.message_id
