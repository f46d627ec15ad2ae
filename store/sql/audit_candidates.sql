-- Conversations to audit: of each tenant ($1), at most $2 conversations that had a message within
-- $3 hours, or were created within them. If a tenant has more, takes those with the latest
-- activity, by the index for lists of conversations; listed_ts is the column of that index.
select c.tenant_id as "tenant_id!", c.conversation_id as "conversation_id!"
from unnest($1::uuid[]) as t (tenant_id)
cross join lateral (
    select tenant_id, conversation_id from ai_conversation
    where tenant_id = t.tenant_id
      and listed_ts is not null
      and listed_ts >= now() - $3::integer * interval '1 hour'
    order by listed_ts desc
    limit $2
) as c
order by c.tenant_id
