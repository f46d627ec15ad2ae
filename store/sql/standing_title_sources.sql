-- The texts of a conversation's user messages (role 1) that stand, in order, of the first $4
-- messages after $3. A message without text has a row as well. Of each text only the beginning: $5
-- characters of its JSON, with the quote that begins it. JSON is not decoded here, because
-- PostgreSQL cannot store the NUL that a text may have.
select m.message_id as "message_id!", t.text as "text?"
from (
    select message_id, content from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id > $3
      and role = 1
      and withdrawn_ts is null
    order by message_id
    limit $4
) as m
left join lateral (
    select part.place, left((part.value -> 'text')::text, $5) as text
    from json_array_elements(m.content) with ordinality as part (value, place)
    where (part.value -> 'type')::text = '"text"'
) as t on true
order by m.message_id, t.place
