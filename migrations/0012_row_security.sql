-- Row-level security: what stands behind the tenant filter of every statement. Servers and workers work in the role anneal_app,
-- which owns nothing and passes by nothing, and name the tenants that they work for in `anneal.tenants`, an array of uuids.
-- Where that is not set, no row is to be seen. The nil uuid stands for the queue, which is one for all tenants: claims, leases,
-- limits of models, chores. The owner, who migrates, is not concerned.
-- `(select …)` has the array read once for each statement, not for each row; `is true` keeps it out of index conditions, where
-- it would cost lists their order.

do $$
begin
    begin
        if not exists (select from pg_roles where rolname = 'anneal_app') then
            create role anneal_app nologin;
        end if;
    exception
        -- Another database of the cluster is migrated at the same moment.
        when duplicate_object or unique_violation then null;
    end;
    if not pg_has_role(current_user, 'anneal_app', 'member') then
        execute format('grant anneal_app to %I', current_user);
    end if;
exception
    when insufficient_privilege then
        raise warning 'this login may not create the role anneal_app or take it: see "Row-level security" in docs/operations.md';
end
$$;

do $$
declare
    -- Rows of one tenant each.
    owned constant text[] := array['ai_conversation', 'ai_message', 'ai_separator', 'ai_conversation_checkpoint', 'ai_request',
        'ai_session', 'ai_context_prefix', 'ai_model_call', 'ai_model'];
    -- The same, and the queue sees them all.
    queued constant text[] := array['ai_job', 'ai_job_dead', 'ai_conversation_breaker', 'ai_model_lease', 'ai_model_spend',
        'ai_summary_part'];
    -- Of the whole fleet.
    shared constant text[] := array['ai_model_breaker'];
    allowed constant text := '(select nullif(current_setting(''anneal.tenants'', true), '''')::uuid[])::uuid[]';
    name text;
begin
    foreach name in array owned loop
        execute format('create policy of_tenant on %I using ((tenant_id = any (%s)) is true)', name, allowed);
    end loop;
    foreach name in array queued loop
        execute format('create policy of_tenant_or_queue on %I using ((tenant_id = any (%s) or %L = any (%s)) is true)', name,
            allowed, '00000000-0000-0000-0000-000000000000', allowed);
    end loop;
    foreach name in array owned || queued loop
        execute format('alter table %I enable row level security', name);
    end loop;
    if exists (select from pg_roles where rolname = 'anneal_app') then
        execute format('grant usage on schema %I to anneal_app', current_schema());
        foreach name in array owned || queued || shared loop
            execute format('grant select, insert, update, delete on %I to anneal_app', name);
        end loop;
        -- The right to update a column is the right to lock a row: budgets are counted under their tenant's.
        grant select, update (created_ts) on tenant to anneal_app;
        grant select on _sqlx_migrations to anneal_app;
    end if;
end
$$;
