-- Looks for rows of the tenants' ($1) conversations that do not exist, in random pages of each table.
-- $2: a hundred times the bytes to read of a table, so that it is a percentage when it is divided by
-- the table's size. Returns at most 100 pairs of a conversation and a table. The lease of a turn that
-- is not stored names no request, and is of no conversation.
select distinct r.table_name as "table_name!", r.tenant_id as "tenant_id!", r.conversation_id as "conversation_id!"
from (
    select 'ai_message' as table_name, tenant_id, conversation_id from ai_message
    tablesample system (least($2::double precision / (pg_relation_size('ai_message') + 1), 100))
    union all
    select 'ai_separator', tenant_id, conversation_id from ai_separator
    tablesample system (least($2 / (pg_relation_size('ai_separator') + 1), 100))
    union all
    select 'ai_conversation_checkpoint', tenant_id, conversation_id from ai_conversation_checkpoint
    tablesample system (least($2 / (pg_relation_size('ai_conversation_checkpoint') + 1), 100))
    union all
    select 'ai_request', tenant_id, conversation_id from ai_request
    tablesample system (least($2 / (pg_relation_size('ai_request') + 1), 100))
    union all
    select 'ai_session', tenant_id, conversation_id from ai_session
    tablesample system (least($2 / (pg_relation_size('ai_session') + 1), 100))
    union all
    select 'ai_context_prefix', tenant_id, conversation_id from ai_context_prefix
    tablesample system (least($2 / (pg_relation_size('ai_context_prefix') + 1), 100))
    union all
    select 'ai_model_call', tenant_id, conversation_id from ai_model_call
    tablesample system (least($2 / (pg_relation_size('ai_model_call') + 1), 100))
    union all
    select 'ai_conversation_breaker', tenant_id, conversation_id from ai_conversation_breaker
    tablesample system (least($2 / (pg_relation_size('ai_conversation_breaker') + 1), 100))
    union all
    select 'ai_model_lease', tenant_id, conversation_id from ai_model_lease
    tablesample system (least($2 / (pg_relation_size('ai_model_lease') + 1), 100))
    where request_id is not null
       or not turn
    union all
    select 'ai_summary_part', tenant_id, conversation_id from ai_summary_part
    tablesample system (least($2 / (pg_relation_size('ai_summary_part') + 1), 100))
    union all
    select 'ai_job', tenant_id, conversation_id from ai_job
    tablesample system (least($2 / (pg_relation_size('ai_job') + 1), 100))
    union all
    select 'ai_job_dead', tenant_id, conversation_id from ai_job_dead
    tablesample system (least($2 / (pg_relation_size('ai_job_dead') + 1), 100))
    union all
    select 'ai_message_version', tenant_id, conversation_id from ai_message_version
    tablesample system (least($2 / (pg_relation_size('ai_message_version') + 1), 100))
    union all
    select 'ai_void_checkpoint', tenant_id, conversation_id from ai_void_checkpoint
    tablesample system (least($2 / (pg_relation_size('ai_void_checkpoint') + 1), 100))
    union all
    select 'ai_message_change', tenant_id, conversation_id from ai_message_change
    tablesample system (least($2 / (pg_relation_size('ai_message_change') + 1), 100))
    union all
    select 'ai_fork', tenant_id, conversation_id from ai_fork
    tablesample system (least($2 / (pg_relation_size('ai_fork') + 1), 100))
    union all
    select 'ai_alternative', tenant_id, conversation_id from ai_alternative
    tablesample system (least($2 / (pg_relation_size('ai_alternative') + 1), 100))
    union all
    select 'ai_prepared_checkpoint', tenant_id, conversation_id from ai_prepared_checkpoint
    tablesample system (least($2 / (pg_relation_size('ai_prepared_checkpoint') + 1), 100))
    union all
    select 'ai_response', tenant_id, conversation_id from ai_response
    tablesample system (least($2 / (pg_relation_size('ai_response') + 1), 100))
) as r
left join lateral (
    -- limit 1: forces a lookup by key.
    select true as is_stored from ai_conversation
    where conversation_id = r.conversation_id
      and (tenant_id = r.tenant_id) is true
    limit 1
) as c on true
where r.tenant_id = any ($1::uuid[])
  and c.is_stored is null
limit 100
