-- Erasures: messages, conversations, all conversations of a user or of a tenant. A row is the work to do, and then the receipt, which
-- is kept and holds no content. Messages and conversations are erased in the transaction that inserts the row. Those of a user or of
-- a tenant are erased by workers, in steps: a step locks the row, deletes some conversations, adds to the figures and commits. The
-- first step also counts what is there.
-- Older workers know nothing of it, so an erasure waits until a newer one runs. Its conversation has the name subject_id, because a
-- deletion clears every table that has a column conversation_id.

create table ai_erasure (
    tenant_id               uuid not null references tenant,    -- owner
    erasure_id              uuid primary key,                   -- version 8, derived from tenant and request_id, or from a conversation, its creation and its change; version 7 without these
    kind                    smallint not null,                  -- 1 messages, 2 conversation, 3 user, 4 tenant
    state                   smallint not null default 0,        -- 0 waiting or running, 1 done
    request_digest          bytea not null,                     -- SHA-256 of the request
    requested_by            text not null,                      -- the caller's name in logs: key:…, token:…, certificate:…, anyone
    requested_ts            timestamptz not null default now(), -- when it was asked for
    ended_ts                timestamptz,                        -- when nothing was left; null: not yet
    stepped_ts              timestamptz not null default now(), -- when a step of it was last made or tried: the next step is of the erasure with the oldest
    user_id                 text,                               -- of kind 3: whose conversations; null once it is done, and of other kinds
    subject_digest          bytea,                              -- of kind 3: SHA-256 of tenant and user_id, by which it is found; otherwise null
    subject_id              uuid,                               -- of kinds 1 and 2: the conversation; otherwise null
    expected_conversations  bigint,                             -- conversations that were there at the first step; 0 for messages; null: not counted
    expected_messages       bigint,                             -- messages that were there at the first step; null: not counted
    conversations           bigint not null default 0,          -- conversations deleted so far
    messages                bigint not null default 0,          -- messages erased so far
    rows_erased             jsonb not null default '{}',        -- rows deleted or emptied so far, by table
    ids_digest              bytea not null,                     -- sum of the SHA-256 of each erased id, modulo 2^256
    constraint ai_erasure_kind_known check (kind between 1 and 4),
    constraint ai_erasure_state_known check (state in (0, 1)),
    constraint ai_erasure_end_known check ((state = 1) = (ended_ts is not null)),
    constraint ai_erasure_user_forgotten check (user_id is null or state = 0)
);

-- find_open_erasures: what is to be done, the oldest step first.
create index ai_erasure_open on ai_erasure (stepped_ts) where state = 0;
-- list_erasures.
create index ai_erasure_by_time on ai_erasure (tenant_id, requested_ts desc, erasure_id desc);
-- list_erasures_of_user.
create index ai_erasure_by_subject on ai_erasure (tenant_id, subject_digest, requested_ts desc, erasure_id desc)
    where subject_digest is not null;

-- Workers look for open erasures of all tenants.
do $$
declare
    allowed constant text := '(select nullif(current_setting(''anneal.tenants'', true), '''')::uuid[])::uuid[]';
begin
    execute format('create policy of_tenant_or_queue on ai_erasure using ((tenant_id = any (%s) or %L = any (%s)) is true)',
        allowed, '00000000-0000-0000-0000-000000000000', allowed);
    alter table ai_erasure enable row level security;
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on ai_erasure to anneal_app;
    end if;
end
$$;
