-- Conversations to audit: of up to $2 tenants after $1, in order, the newest $3 of those in which something was said within $4
-- hours. The index that lists go by has them in this order.
select c.tenant_id as "tenant_id!", c.conversation_id as "conversation_id!"
from (
    select tenant_id from tenant
    where tenant_id > $1
    order by tenant_id
    limit $2
) as t
cross join lateral (
    select tenant_id, conversation_id from ai_conversation
    where tenant_id = t.tenant_id
      and listed_ts is not null
      and listed_ts >= now() - $4::integer * interval '1 hour'
    order by listed_ts desc
    limit $3
) as c
order by c.tenant_id
