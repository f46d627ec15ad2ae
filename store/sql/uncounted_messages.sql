-- The next uncounted messages of a conversation, oldest first: at most $3, and $4 bytes of text beyond the first. One row
-- without a message when all are counted; no row when the conversation is gone.
select c.encoding, c.counted_message_id, c.last_message_id, m.message_id as "message_id?", m.role as "role?",
    m.content::text as "content?: String"
from ai_conversation as c
left join lateral (
    select message_id, sum(text_bytes) over (order by message_id) as page_bytes,
        row_number() over (order by message_id) as place
    from (
        select message_id, text_bytes from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id > c.counted_message_id
        order by message_id
        limit $3
    ) as candidate
) as page on page.place = 1 or page.page_bytes <= $4::bigint
left join lateral (
    -- limit 1: a join by key, row by row; without it a long conversation is hashed whole
    select message_id, role, content
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = page.message_id
    limit 1
) as m on true
where c.tenant_id = $1
  and c.conversation_id = $2
order by m.message_id
