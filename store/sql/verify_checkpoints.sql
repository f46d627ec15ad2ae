-- Every checkpoint of a conversation, with the generation of the checkpoint that it follows, and
-- with the number of checkpoints that follow the same one ("siblings", this one included). At most
-- 100,000.
select k.first_message_id, k.last_message_id, k.previous_message_id, k.source_first_message_id, k.source_digest,
    k.generation, p.generation as "previous_generation?",
    count(*) over (partition by k.first_message_id, k.previous_message_id) as "siblings!",
    k.change_id, (extract(epoch from k.created_ts) * 1000000)::bigint as "created_us!"
from ai_conversation_checkpoint as k
left join ai_conversation_checkpoint as p
  on p.conversation_id = k.conversation_id
 and p.first_message_id = k.first_message_id
 and p.last_message_id = k.previous_message_id
where k.tenant_id = $1
  and k.conversation_id = $2
order by k.first_message_id, k.last_message_id
limit 100000
