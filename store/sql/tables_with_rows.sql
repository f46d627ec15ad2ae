-- The tables that have rows of a conversation ($2). `is true` keeps conditions on the tenant out of
-- index conditions, so that the rows are found by the conversation in every plan.
select t.table_name as "table_name!"
from (
    select 'ai_message' as table_name, exists (
        select from ai_message where conversation_id = $2::uuid and (tenant_id = $1::uuid) is true
    ) as has_rows
    union all
    select 'ai_separator', exists (
        select from ai_separator where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_conversation_checkpoint', exists (
        select from ai_conversation_checkpoint where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_request', exists (
        select from ai_request where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_session', exists (
        select from ai_session where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_context_prefix', exists (
        select from ai_context_prefix where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_model_call', exists (
        select from ai_model_call where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_conversation_breaker', exists (
        select from ai_conversation_breaker where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_model_lease', exists (
        select from ai_model_lease where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_summary_part', exists (
        select from ai_summary_part where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_job', exists (
        select from ai_job where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_job_dead', exists (
        select from ai_job_dead where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_message_version', exists (
        select from ai_message_version where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_void_checkpoint', exists (
        select from ai_void_checkpoint where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_message_change', exists (
        select from ai_message_change where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_fork', exists (
        select from ai_fork where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_alternative', exists (
        select from ai_alternative where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_prepared_checkpoint', exists (
        select from ai_prepared_checkpoint where conversation_id = $2 and (tenant_id = $1) is true
    )
    union all
    select 'ai_response', exists (
        select from ai_response where conversation_id = $2 and (tenant_id = $1) is true
    )
) as t
where t.has_rows
