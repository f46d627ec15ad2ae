-- Large messages of the tail that lack a summary, oldest first. $3: the server's large_message_threshold.
select m.message_id
from ai_conversation as c
left join lateral (
    select max(after_message_id) as separator from ai_separator
    where conversation_id = c.conversation_id
) as s on true
left join lateral (
    select last_message_id from ai_conversation_checkpoint
    where conversation_id = c.conversation_id
      and first_message_id = coalesce(s.separator, 0) + 1
    order by last_message_id desc
    limit 1
) as k on true
join ai_message as m
  on m.tenant_id = $1
 and m.conversation_id = c.conversation_id
 and m.message_id > greatest(coalesce(s.separator, 0), coalesce(k.last_message_id, 0))
where c.tenant_id = $1
  and c.conversation_id = $2
  and m.token_count > coalesce((c.policy ->> 'large_message_threshold')::bigint, $3)
  and m.summary_ts is null
order by m.message_id
limit $4
