-- Stores the token counts of messages ($1: tenants, $2: conversations, $3: messages, $4: tokens),
-- and records of each conversation up to which message it is counted ($5: tenants, $6:
-- conversations, $7: messages). The caller has locked the conversations' rows. Returns each
-- conversation's total of tokens, in which the counts replace the estimates. Adds the messages to
-- what their tenants have stored (tenant_usage_part).
with counted as (
    update ai_message as m
    set token_count = new.tokens
    -- (select $1): hides the number of rows from the planner, which then joins by key in a nested
    -- loop.
    from unnest((select $1::uuid[]), (select $2::uuid[]), (select $3::bigint[]), (select $4::bigint[]))
        as new (tenant_id, conversation_id, message_id, tokens)
    where m.tenant_id = new.tenant_id
      and m.conversation_id = new.conversation_id
      and m.message_id = new.message_id
      and m.token_count is null
    returning m.tenant_id, m.conversation_id, new.tokens - m.token_estimate as change,
        coalesce(m.content_bytes, octet_length(m.content::text)) as bytes
), changed as (
    select conversation_id, sum(change)::bigint as change from counted
    group by conversation_id
), used as (
    insert into tenant_usage_part as u (tenant_id, part, messages, content_bytes)
    -- Parts of several tenants are locked in the order of tenants, so that there is no deadlock.
    select tenant_id, pg_backend_pid() % 64, count(*), sum(bytes)::bigint from counted group by tenant_id order by tenant_id
    on conflict (tenant_id, part) do update
    set messages = u.messages + excluded.messages, content_bytes = u.content_bytes + excluded.content_bytes
)
update ai_conversation as c
set counted_message_id = progress.counted_message_id,
    token_total = c.token_total + coalesce(changed.change, 0)
from unnest((select $5::uuid[]), (select $6::uuid[]), (select $7::bigint[]))
    as progress (tenant_id, conversation_id, counted_message_id)
left join changed on changed.conversation_id = progress.conversation_id
where c.tenant_id = progress.tenant_id
  and c.conversation_id = progress.conversation_id
returning c.conversation_id as "conversation_id!", c.token_total as "token_total!"
