-- The heads of watched conversations: newest message, last counted message, total of tokens, newest
-- change, dead jobs, time of creation. A deleted conversation has no row.
select head.tenant_id as "tenant_id!", head.conversation_id as "conversation_id!", head.last_message_id as "last_message_id!",
    head.counted_message_id as "counted_message_id!", head.token_total as "token_total!", head.change_id as "change_id!",
    (extract(epoch from head.created_ts) * 1000000)::bigint as "created_us!",
    dead.kinds as "dead_kinds!", dead.died_us as "dead_us!"
from unnest($1::uuid[], $2::uuid[]) as watched (tenant_id, conversation_id)
cross join lateral (
    -- limit 1: forces a nested loop by key. Otherwise the planner may hash all conversations.
    select tenant_id, conversation_id, last_message_id, counted_message_id, token_total, change_id, created_ts
    from ai_conversation
    where tenant_id = watched.tenant_id
      and conversation_id = watched.conversation_id
    limit 1
) as head
cross join lateral (
    select coalesce(array_agg(kind order by kind), '{}') as kinds,
        coalesce(array_agg((extract(epoch from died_ts) * 1000000)::bigint order by kind), '{}') as died_us
    from ai_job_dead
    where tenant_id = watched.tenant_id
      and conversation_id = watched.conversation_id
) as dead
