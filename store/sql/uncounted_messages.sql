-- The next uncounted messages of conversations ($1: tenants, $2: conversations), oldest first. Of
-- each conversation it returns at most $3 messages with at most $4 bytes together, or the first one
-- alone if that has more. If $5 is true, only conversations are read that have no more than $3
-- uncounted messages and $4 bytes. A conversation of which no message is read has one row without a
-- message. A deleted conversation has no row.
select c.conversation_id as "conversation_id!", c.encoding as "encoding!", c.counted_message_id as "counted_message_id!",
    c.last_message_id as "last_message_id!", m.message_id as "message_id?", m.role as "role?", m.content::text as "content?: String"
from unnest((select $1::uuid[]), (select $2::uuid[])) as asked (tenant_id, conversation_id)
cross join lateral (
    -- limit 1: forces a nested loop by key. Otherwise the planner may hash all conversations.
    select tenant_id, conversation_id, encoding, counted_message_id, last_message_id
    from ai_conversation
    where tenant_id = asked.tenant_id
      and conversation_id = asked.conversation_id
    limit 1
) as c
left join lateral (
    select message_id, sum(bytes) over (order by message_id) as page_bytes, sum(bytes) over () as all_bytes,
        row_number() over (order by message_id) as place
    from (
        select message_id, coalesce(content_bytes, octet_length(content::text)) as bytes from ai_message
        where tenant_id = c.tenant_id
          and conversation_id = c.conversation_id
          and message_id > c.counted_message_id
          and (not $5::boolean or c.last_message_id - c.counted_message_id <= $3)
        order by message_id
        limit $3
    ) as candidate
) as page on case when $5::boolean then page.all_bytes <= $4::bigint else page.place = 1 or page.page_bytes <= $4::bigint end
left join lateral (
    -- limit 1: forces a nested loop by key. Otherwise the planner may hash the whole conversation.
    select message_id, role, content
    from ai_message
    where tenant_id = c.tenant_id
      and conversation_id = c.conversation_id
      and message_id = page.message_id
    limit 1
) as m on true
order by c.conversation_id, m.message_id
