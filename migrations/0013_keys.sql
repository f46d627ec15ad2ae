-- API keys: made by `anneal keys create`, shown once. Looked up before it is known whose they are: no row-level security.

create table api_key (
    key_id         uuid primary key,                            -- the part of the key that may be shown
    tenant_id      uuid not null references tenant,             -- for whom it speaks
    name           text not null,                               -- who uses it, in people's words
    secret_digest  bytea not null,                              -- SHA-256 of its secret part: 256 random bits need no slow hash
    verbs          smallint not null,                           -- what it allows: bits 1 read, 2 append, 4 admin, 8 operator
    created_ts     timestamptz not null default now(),          -- when it was made
    expires_ts     timestamptz,                                 -- from when on it is refused; null: never
    revoked_ts     timestamptz,                                 -- when it was revoked; null: it was not
    constraint api_key_secret_hashed check (octet_length(secret_digest) = 32)
);

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant select on api_key to anneal_app;
    end if;
end
$$;
