-- Enqueues jobs ($1: tenants, $2: kinds, $3: conversations), in the order of kinds and
-- conversations. A job that exists already gets a higher generation. Its attempts stay counted, and
-- if it failed or was deferred (last_error says why), it is due no earlier. Null in $4: triggers
-- cause the jobs. Otherwise $4 is the argument of a manual compaction, which gets priority and is
-- due at once. $5 has the trace context of each job. A job that exists already gets the new one.
insert into ai_job as j (tenant_id, kind, conversation_id, priority, argument, argument_generation, trace_context)
select tenant_id, kind, conversation_id, case when $4::text is null then 0 else -1 end, $4::text::json,
    case when $4 is not null then 1 end, trace_context
from unnest($1::uuid[], $2::smallint[], $3::uuid[], $5::text[]) as new (tenant_id, kind, conversation_id, trace_context)
order by kind, conversation_id
on conflict (kind, conversation_id) do update set
    generation = j.generation + 1,
    priority = least(j.priority, excluded.priority),
    due_ts = case
        when j.state = 0 and (j.attempts = 0 and j.last_error is null or excluded.argument is not null) then least(j.due_ts, excluded.due_ts)
        else j.due_ts
    end,
    argument = coalesce(excluded.argument, j.argument),
    argument_generation = case
        when excluded.argument is not null then j.generation + 1
        else j.argument_generation
    end,
    trace_context = excluded.trace_context
