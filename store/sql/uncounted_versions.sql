-- The content of withdrawn messages ($3) that was withdrawn before it was counted, although the
-- conversation is counted beyond them by now. "bytes" are those of all of it. If they and 512 for
-- each row exceed $4, content is null.
select v.message_id as "message_id!", c.encoding as "encoding!",
    case when v.all_bytes <= $4::bigint then v.content::text end as "content?: StoredText", v.bytes as "bytes!"
from ai_conversation as c
cross join lateral (
    select v.message_id, v.content, sum(v.content_bytes) over ()::bigint as bytes,
        sum(v.content_bytes + 512) over () as all_bytes
    from ai_message as m
    join ai_message_version as v
      on v.tenant_id = $1
     and v.conversation_id = $2
     and v.message_id = m.message_id
     and v.version = coalesce(m.version, 1)
    where m.tenant_id = $1
      and m.conversation_id = $2
      and m.message_id = any ($3)
      and m.message_id <= c.counted_message_id
      and m.withdrawn_ts is not null
      and v.token_count is null
) as v
where c.tenant_id = $1
  and c.conversation_id = $2
order by v.message_id
