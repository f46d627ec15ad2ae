-- One large message that stands, to be summarized, and the encoding in which its conversation
-- counts tokens.
select m.role, coalesce(m.token_count, m.token_estimate) as "tokens!", m.content::text as "content!", c.encoding
from ai_conversation as c
join ai_message as m
  on m.tenant_id = $1
 and m.conversation_id = c.conversation_id
 and m.message_id = $3
 and m.withdrawn_ts is null
where c.tenant_id = $1
  and c.conversation_id = $2
