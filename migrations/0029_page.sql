-- API keys can be bound to a user, an agent or a conversation; people sign in to the page. Older binaries work beside it: to them a bound
-- key is unknown, because its digest covers the binding, and sessions of the page mean nothing.

-- ai_conversation comes first, as in 0023: most transactions lock it before other tables.
-- anneal.bound holds what a connection is bound to: '' (nothing), 'conversation:' and its id, or 'user:' or 'agent:' and the id's bytes in
-- hexadecimal digits. Unbound callers pay one test for null: the rest is not evaluated. With case, the planner assumes that half of the
-- rows pass; with "or" it would assume that nearly none do, and read all conversations to sort them.
create policy of_bound on ai_conversation as restrictive using ((case
    when (select nullif(current_setting('anneal.bound', true), '')) is null then true
    else current_setting('anneal.bound', true) in (
        'conversation:' || conversation_id,
        'user:' || encode(convert_to(user_id, 'UTF8'), 'hex'),
        'agent:' || encode(convert_to(agent_id, 'UTF8'), 'hex')
    )
end) is true);

alter table api_key
    add column bound_kind smallint,                             -- 1 user, 2 agent, 3 conversation; null: the key speaks for the whole tenant
    add column bound_id text;                                   -- the user, agent or conversation; null as bound_kind
comment on column api_key.secret_digest is 'SHA-256 of its secret part; of a bound key: of secret, 0 and binding';

-- Looked up before it is known whose it is: no row-level security, as api_key.
create table web_session (
    session_digest  bytea primary key,                          -- SHA-256 of the cookie's secret
    tenant_id       uuid not null,                              -- for whom it speaks
    holder_digest   bytea not null,                             -- SHA-256 of what the sessions of one holder share: key, subject, or the token
    key_id          uuid,                                       -- key that signed in, with which it ends; null: a token did
    bound_digest    bytea,                                      -- SHA-256 of what the key was bound to then, with which it ends; null: nothing
    subject         text not null,                              -- subject of the token as it is shown; '' for a key
    token_key       text,                                       -- id (kid) of the key that signed the token, with which it ends; null for a key
    verbs           smallint,                                   -- verbs of the token, as api_key.verbs; null for a key
    began_ts        timestamptz not null default now(),         -- when the credential was shown
    expires_ts      timestamptz not null,                       -- from when on it is refused; a visit extends it
    ends_ts         timestamptz not null                        -- until when visits can extend it
);
-- put_web_session: the sessions of a key, subject or token, newest first. Erasures of the tenant.
create index web_session_by_holder on web_session (tenant_id, holder_digest, began_ts);
-- put_web_session and delete_expired_web_sessions: those that have expired.
create index web_session_by_expiry on web_session (expires_ts);

do $$
declare
    bound constant text := '(select nullif(current_setting(''anneal.bound'', true), ''''))';
    allowed constant text := '(select nullif(current_setting(''anneal.tenants'', true), '''')::uuid[])::uuid[]';
    name text;
begin
    -- Whether the conversation is among those that the connection sees: the policies of ai_conversation decide. It is a function, so that
    -- plans of unbound callers have no subquery for it. The schema is named, so that no table of the same name stands before it.
    -- It costs some 10 microseconds a row. A connection that is bound to a conversation compares ids instead; statements that read many
    -- rows of one conversation for a bound user or agent are narrowed to it first.
    execute format($function$
        create function sees_conversation(id uuid) returns boolean
        language plpgsql stable parallel safe
        as $body$
        begin
            return exists (select from %1$I.ai_conversation where conversation_id = id);
        end
        $body$
        $function$, current_schema);
    foreach name in array array['ai_message', 'ai_message_version', 'ai_message_change', 'ai_separator', 'ai_conversation_checkpoint',
        'ai_void_checkpoint', 'ai_prepared_checkpoint', 'ai_request', 'ai_session', 'ai_context_prefix', 'ai_model_call', 'ai_job',
        'ai_job_dead', 'ai_conversation_breaker', 'ai_model_lease', 'ai_summary_part', 'ai_fork', 'ai_alternative', 'ai_response'] loop
        execute format($policy$
            create policy of_bound on %1$I as restrictive for select using ((%2$s is null
                or case when starts_with(%2$s, 'conversation:') then %2$s = 'conversation:' || conversation_id
                    else sees_conversation(conversation_id) end) is true)
            $policy$, name, bound);
    end loop;
    -- The operator's page names the largest tenants.
    foreach name in array array['tenant_usage', 'tenant_usage_part'] loop
        execute format('create policy of_queue on %I for select using ((%L = any (%s)) is true)', name,
            '00000000-0000-0000-0000-000000000000', allowed);
    end loop;
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on web_session to anneal_app;
        grant execute on function sees_conversation(uuid) to anneal_app;
    end if;
end
$$;
