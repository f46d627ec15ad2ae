-- The tool calls and results of the newest turn, of its messages that stand behind the boundary, in
-- order. $3: among how many of the conversation's newest messages they are looked for.
select m.message_id as "message_id!", m.tool_outline::text as "outline!"
from ai_conversation as c
cross join lateral context_boundary(c.conversation_id) as b
-- offset 0: an optimization fence. `-` and coalesce, of which the boundary is made, are not
-- leakproof, so under row-level security an expression with them cannot be an index condition; the
-- column can.
cross join lateral (
    select greatest(b.boundary, c.last_message_id - $3::bigint) as message_id
    offset 0
) as before
cross join lateral (
    select message_id, tool_outline from ai_message
    where tenant_id = c.tenant_id
      and conversation_id = c.conversation_id
      and message_id > before.message_id
      and turn = c.turn
      and withdrawn_ts is null
      and tool_outline is not null
) as m
where c.tenant_id = $1
  and c.conversation_id = $2
order by m.message_id
