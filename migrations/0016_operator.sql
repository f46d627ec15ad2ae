-- When a key was last used: who revokes old keys sees which of them nobody would miss. Written by servers in the background, to the
-- hour, and at most once an hour for each key.

alter table api_key add column last_used_ts timestamptz;        -- the hour in which a call last showed it; null: none has

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant update (last_used_ts) on api_key to anneal_app;
    end if;
end
$$;
