-- Language models: their calls under way, their breakers, what tenants spend on them, and finished parts of long summaries.

-- Of the whole fleet, not of a tenant: providers and their keys are the operator's.
create table ai_model_breaker (
    model          text primary key,                            -- its name in the configuration
    failures       integer not null default 0,                  -- calls of any conversation that failed in a row
    open_until_ts  timestamptz,                                 -- nobody calls before then; null: closed. Past: one call tries
    last_error     text,                                        -- what went wrong last; never content
    updated_ts     timestamptz not null default now(),          -- when a call was last admitted or settled
    constraint ai_model_breaker_failures_not_negative check (failures >= 0)
);

create table ai_conversation_breaker (
    tenant_id        uuid not null,                             -- owner
    conversation_id  uuid not null references ai_conversation on delete cascade, -- conversation
    model            text not null,                             -- the model that failed it
    failures         integer not null,                          -- calls that failed in a row
    open_until_ts    timestamptz,                               -- as in ai_model_breaker
    last_error       text not null,                             -- what went wrong last; never content
    updated_ts       timestamptz not null default now(),        -- when a call was last admitted or settled
    primary key (conversation_id, model),
    constraint ai_conversation_breaker_failures_some check (failures > 0)
);

-- conversation_breakers: those of a tenant that have opened.
create index ai_conversation_breaker_open on ai_conversation_breaker (tenant_id, open_until_ts) where open_until_ts is not null;

-- A call under way. Whoever dies stops renewing: limits and budgets are sums over rows that are not past their time.
create table ai_model_lease (
    tenant_id        uuid not null,                             -- owner
    conversation_id  uuid not null references ai_conversation on delete cascade, -- conversation
    lease            uuid not null,                             -- the call
    model            text not null,                             -- its name in the configuration
    turn             boolean not null,                          -- whether it is a turn of a chat: one for each conversation
    reserved_tokens  bigint not null,                           -- what it may use, counted as spent until it is settled
    lease_until_ts   timestamptz not null,                      -- renewed while it runs; past: it is gone
    primary key (conversation_id, lease)
);

-- admit_call: a second turn of a conversation is refused.
create unique index ai_model_lease_turn_unique on ai_model_lease (conversation_id) where turn;
-- admit_call: calls of a model under way.
create index ai_model_lease_by_model on ai_model_lease (model, lease_until_ts);
-- admit_call: what a tenant's calls have reserved.
create index ai_model_lease_by_tenant on ai_model_lease (tenant_id, lease_until_ts);

-- Not of one conversation, and never in one transaction with one: what calls have cost.
create table ai_model_spend (
    tenant_id      uuid not null,                               -- owner
    day            date not null,                               -- day in UTC
    model          text not null,                               -- its name in the configuration
    calls          bigint not null,                             -- calls that were settled
    failed_calls   bigint not null,                             -- of these: without a usable answer
    input_tokens   bigint not null,                             -- read, by the provider's count; where it does not say, by ours
    output_tokens  bigint not null,                             -- written
    primary key (tenant_id, day, model)
);

-- Parts of a summary that needs several calls: kept until the summary is stored, so that a retry goes on where it stopped.
create table ai_summary_part (
    tenant_id        uuid not null,                             -- owner
    conversation_id  uuid not null references ai_conversation on delete cascade, -- conversation
    kind             smallint not null,                         -- the job's kind, as in ai_job
    part_digest      bytea not null,                            -- SHA-256 of all that the part was made from
    summary          text not null,                             -- the part's summary
    model_calls      integer not null,                          -- calls that it took, failed and repeated ones included
    input_tokens     bigint not null,                           -- read for it
    output_tokens    bigint not null,                           -- written for it
    created_ts       timestamptz not null default now(),        -- when it was made
    primary key (conversation_id, kind, part_digest)
);

-- forget_old_parts: those of jobs that were given up.
create index ai_summary_part_by_age on ai_summary_part (created_ts);

-- What a model read and wrote for a summary, by its provider's count. Zeros for extractive ones.
alter table ai_conversation_checkpoint
    add column model_calls    integer not null default 0,       -- calls, failed and repeated ones included
    add column input_tokens   bigint not null default 0,        -- read
    add column output_tokens  bigint not null default 0;        -- written
alter table ai_message
    add column summary_input_tokens   bigint,                   -- read for summary_cache; null until made
    add column summary_output_tokens  bigint,                   -- written for it; null until made
    add column summary_duration_ms    bigint;                   -- how long it took; null until made

-- Turns that anneal runs itself: what a repeated call must say of the answer that it finds.
alter table ai_model_call
    add column stop_reason  smallint,                           -- 1 said everything, 2 waits for tools, 3 output limit, 4 filtered; null: not said
    add constraint ai_model_call_stop_reason_known check (stop_reason between 1 and 4);
