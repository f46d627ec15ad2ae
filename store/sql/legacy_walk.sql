-- Every older conversation with its rows that are kept, in the order in which they are stored; one
-- row without a message if none is kept. Keys only: content is read batch by batch.
declare legacy_walk no scroll cursor for
select c.id as conversation, m.id, m.fate, m.role, m.created_us, m.bytes
from legacy_conversation as c
left join legacy_message as m on m.conversation_id = c.id and m.fate in ('message', 'separator')
order by c.id, m.created_us, m.id
