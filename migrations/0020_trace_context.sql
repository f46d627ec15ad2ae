-- Traces: a worker's span continues the trace of the call that enqueued its job.
-- Older binaries work beside it. They enqueue without a trace context, and do not read it: a job that they enqueue again keeps
-- the older one.

alter table ai_job
    add column trace_context text;                              -- traceparent (W3C, 55 characters) of the newest span that enqueued the job; null: traces were off
