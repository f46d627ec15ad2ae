-- People sign in to the page. Older binaries work beside it: to them sessions of the page mean nothing.

-- Looked up before it is known whose it is: no row-level security, as api_key.
create table web_session (
    session_digest  bytea primary key,                          -- SHA-256 of the cookie's secret
    tenant_id       uuid not null,                              -- for whom it speaks
    key_id          uuid,                                       -- key that signed in, with which it ends; null: a token did
    subject         text not null,                              -- subject of the token; '' for a key
    verbs           smallint,                                   -- verbs of the token, as api_key.verbs; null for a key
    began_ts        timestamptz not null default now(),         -- when the credential was shown
    expires_ts      timestamptz not null,                       -- from when on it is refused; a visit extends it
    ends_ts         timestamptz not null                        -- until when it can be extended
);
-- put_web_session: the sessions of a key or subject, oldest first.
create index web_session_by_holder on web_session (tenant_id, key_id, subject, began_ts);
-- put_web_session: those that have expired.
create index web_session_by_expiry on web_session (expires_ts);

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select, insert, update, delete on web_session to anneal_app;
    end if;
end
$$;
