-- The texts of a conversation's user messages (role 1) that stand, in order, of the first $4
-- messages after $3. A message without text has a row as well. Of each text only the first $5
-- characters.
--
-- PostgreSQL cannot decode \u0000, JSON's escape of NUL, so content that has it is read without it:
-- not if an odd number of backslashes precedes it, because then it is a backslash and "u0000".
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
    select place, left(part ->> 'text', $5) as text
    from json_array_elements(
        case
            when position('\u0000' in m.content::text) = 0 then m.content
            else regexp_replace(m.content::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json
        end
    ) with ordinality as parts (part, place)
    where part ->> 'type' = 'text'
) as t on true
order by m.message_id, t.place
