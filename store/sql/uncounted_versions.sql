-- A page of the content of withdrawn messages ($3) after $5, oldest first, that was withdrawn before it
-- was counted, although the conversation is counted beyond it by now. All content of the page has at
-- most $6 bytes, except that the first message may have any size. "bytes" are the bytes of the page
-- up to this message. If they exceed $4 (what the caller has reserved), content is null.
select page.message_id as "message_id!", c.encoding as "encoding!",
    case when page.page_bytes <= $4::bigint then page.content::text end as "content?: StoredText",
    page.page_bytes as "bytes!"
from ai_conversation as c
cross join lateral (
    select v.message_id, v.content, sum(v.content_bytes) over (order by v.message_id)::bigint as page_bytes,
        row_number() over (order by v.message_id) as place
    from ai_message as m
    join ai_message_version as v
      on v.tenant_id = $1
     and v.conversation_id = $2
     and v.message_id = m.message_id
     and v.version = coalesce(m.version, 1)
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = any ($3)
      and m.message_id > $5
      and m.message_id <= c.counted_message_id
      and m.withdrawn_ts is not null
      and v.token_count is null
) as page
where c.tenant_id = $1
  and c.conversation_id = $2
  and (page.place = 1 or page.page_bytes <= $6::bigint)
order by page.message_id
