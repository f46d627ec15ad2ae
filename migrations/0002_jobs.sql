-- Background work: a set of dirty conversations per kind of job, not a log. Enqueueing twice marks twice and runs once.

create table ai_job (
    tenant_id            uuid not null,                         -- owner
    kind                 smallint not null,                     -- 1 count_tokens, 2 checkpoint, 3 summarize_messages
    conversation_id      uuid not null,                         -- conversation to work on
    generation           bigint not null default 1,             -- + 1 per enqueue: what arrived during a run is seen
    priority             smallint not null default 0,           -- lower first
    due_ts               timestamptz not null default now(),    -- not before
    dirty_ts             timestamptz not null default now(),    -- since when there is work
    state                smallint not null default 0,           -- 0 waiting, 1 leased
    attempts             smallint not null default 0,           -- starts since the last success; new work does not reset it
    lease                uuid,                                  -- fencing token of the claim, made by the worker; never reused
    lease_until_ts       timestamptz,                           -- when others may take it
    worker               text,                                  -- who holds it
    last_error           text,                                  -- what went wrong last; never content
    argument             json,                                  -- for checkpoint: a manual compaction's focus and request_id
    argument_generation  bigint,                                -- generation that brought the argument
    primary key (kind, conversation_id),
    constraint ai_job_state_known check (state in (0, 1)),
    constraint ai_job_lease_whole check ((state = 1) = (lease is not null and lease_until_ts is not null))
);

-- claim_jobs: due jobs, tenant by tenant.
create index ai_job_ready on ai_job (kind, tenant_id, priority, due_ts) where state = 0;
-- rescue_jobs: leases that ran out.
create index ai_job_leased on ai_job (kind, lease_until_ts) where state = 1;
-- delete_conversation, and jobs of one conversation.
create index ai_job_by_conversation on ai_job (conversation_id);

create table ai_job_dead (
    tenant_id            uuid not null,                         -- owner
    kind                 smallint not null,                     -- as in ai_job
    conversation_id      uuid not null references ai_conversation on delete cascade, -- conversation
    generation           bigint not null,                       -- as it was at death
    attempts             smallint not null,                     -- starts before it was given up
    last_error           text,                                  -- what went wrong last; never content
    argument             json,                                  -- as in ai_job
    dirty_ts             timestamptz not null,                  -- since when there was work
    died_ts              timestamptz not null default now(),    -- when it was given up
    primary key (kind, conversation_id)
);

-- delete_conversation: the foreign key's lookup.
create index ai_job_dead_by_conversation on ai_job_dead (conversation_id);
