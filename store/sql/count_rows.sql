-- How many rows each table has of conversations ($2), except messages and their versions, which
-- delete_messages.sql counts. `is true` keeps conditions on the tenant out of index conditions, so
-- that the rows are found by the conversations in every plan.
select t.table_name as "table_name!", t.rows as "rows!"
from (
    select 'ai_conversation' as table_name, (
        select count(*) from ai_conversation where conversation_id = any ($2::uuid[]) and (tenant_id = $1::uuid) is true
    ) as rows
    union all
    select 'ai_separator', (
        select count(*) from ai_separator where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_conversation_checkpoint', (
        select count(*) from ai_conversation_checkpoint where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_request', (
        select count(*) from ai_request where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_session', (
        select count(*) from ai_session where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_context_prefix', (
        select count(*) from ai_context_prefix where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_model_call', (
        select count(*) from ai_model_call where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_conversation_breaker', (
        select count(*) from ai_conversation_breaker where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_model_lease', (
        select count(*) from ai_model_lease where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_summary_part', (
        select count(*) from ai_summary_part where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_job', (
        select count(*) from ai_job where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_job_dead', (
        select count(*) from ai_job_dead where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_void_checkpoint', (
        select count(*) from ai_void_checkpoint where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_message_change', (
        select count(*) from ai_message_change where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_fork', (
        select count(*) from ai_fork where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_alternative', (
        select count(*) from ai_alternative where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_prepared_checkpoint', (
        select count(*) from ai_prepared_checkpoint where conversation_id = any ($2) and (tenant_id = $1) is true
    )
    union all
    select 'ai_response', (
        select count(*) from ai_response where conversation_id = any ($2) and (tenant_id = $1) is true
    )
) as t
where t.rows > 0
