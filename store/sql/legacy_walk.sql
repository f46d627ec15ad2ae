-- A cursor over the conversations of the older tables, each with its messages and separators that
-- are moved, in their order. A conversation without any has one row in which the other columns are
-- null. "fate" is `message` or `separator`: what the move makes of the row (see legacy_views.sql).
-- There is no content in the rows, because the move reads content batch by batch.
declare legacy_walk no scroll cursor for
select c.id as conversation, m.id, m.fate, m.role, m.created_us, m.bytes
from legacy_conversation as c
left join legacy_message as m on m.conversation_id = c.id and m.fate in ('message', 'separator')
order by c.id, m.created_us, m.id
