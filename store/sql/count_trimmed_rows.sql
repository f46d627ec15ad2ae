-- How many rows of these conversations ($2) trim_context_prefixes.sql, trim_model_calls.sql,
-- trim_requests.sql and trim_dead_jobs.sql would delete, with these limits: $3 prefixes that are
-- kept of each conversation, $4, $5, $6: days. 0: none is deleted. `is true`: see
-- trim_context_prefixes.sql.
select coalesce(sum(prefixes), 0)::bigint as "prefixes!", coalesce(sum(calls), 0)::bigint as "calls!",
    coalesce(sum(requests), 0)::bigint as "requests!", coalesce(sum(dead_jobs), 0)::bigint as "dead_jobs!"
from unnest((select $2::uuid[])) as walked (conversation_id)
cross join lateral (
    select count(*) as prefixes from ai_context_prefix
    where $3::bigint > 0
      and conversation_id = walked.conversation_id
      and (tenant_id = $1) is true
      and epoch <= (
          select max(epoch) from ai_context_prefix
          where conversation_id = walked.conversation_id
            and (tenant_id = $1) is true
      ) - $3
) as p
cross join lateral (
    select count(*) as calls from ai_model_call
    where $4::integer > 0
      and conversation_id = walked.conversation_id
      and (tenant_id = $1) is true
      and created_ts < now() - $4 * interval '1 day'
) as m
cross join lateral (
    select count(*) as requests from ai_request
    where $5::integer > 0
      and conversation_id = walked.conversation_id
      and (tenant_id = $1) is true
      and method <> 'append_messages'
      and created_ts < now() - $5 * interval '1 day'
) as r
cross join lateral (
    select count(*) as dead_jobs from ai_job_dead
    where $6::integer > 0
      and conversation_id = walked.conversation_id
      and (tenant_id = $1) is true
      and died_ts < now() - $6 * interval '1 day'
) as j
