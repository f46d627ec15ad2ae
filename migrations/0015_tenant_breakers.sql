-- A model's failures, tenant by tenant: what fails one tenant's calls may be that tenant's own requests. Its own breaker opens
-- for it alone; the model's opens on failures of several. Older servers go on with the model's alone.

create table ai_tenant_breaker (
    tenant_id      uuid not null,                               -- owner
    model          text not null,                               -- the model's name in the configuration
    failures       integer not null default 0,                  -- calls of the tenant that failed in a row
    evidence       integer not null default 0,                  -- of these: what counts against the model, in the series below
    series         bigint not null default 0,                   -- the model's series of failures that evidence belongs to
    open_until_ts  timestamptz,                                 -- the tenant does not call before then; null: closed. Past: one call tries
    last_error     text not null default '',                    -- what went wrong last; never content
    updated_ts     timestamptz not null default now(),          -- when a call was last settled, or tried whether it may close
    primary key (tenant_id, model),
    constraint ai_tenant_breaker_failures_not_negative check (failures >= 0),
    constraint ai_tenant_breaker_evidence_not_negative check (evidence >= 0)
);

-- model_stats: how many tenants do not call a model.
create index ai_tenant_breaker_open on ai_tenant_breaker (model, open_until_ts) where open_until_ts is not null;

alter table ai_model_breaker
    add column evidence  integer not null default 0,            -- failures of the series, of each tenant no more than its share
    add column series    bigint not null default 0,             -- the present series of failures: one more when it ends or opens the breaker
    add constraint ai_model_breaker_evidence_not_negative check (evidence >= 0);

alter table ai_tenant_breaker enable row level security;

do $$
declare
    allowed constant text := '(select nullif(current_setting(''anneal.tenants'', true), '''')::uuid[])::uuid[]';
begin
    execute format('create policy of_tenant_or_queue on ai_tenant_breaker using ((tenant_id = any (%s) or %L = any (%s)) is true)',
        allowed, '00000000-0000-0000-0000-000000000000', allowed);
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on ai_tenant_breaker to anneal_app;
    end if;
end
$$;
