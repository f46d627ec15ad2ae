-- The settings of the database and of this session that `anneal doctor` judges, and a role of the
-- session that ignores row-level security.
select
    current_setting('server_version_num')::int as "version!",
    current_setting('server_version') as "version_text!",
    session_user::text as "login!",
    (
        select rolname::text from pg_roles
        where rolname in (current_user, session_user) and (rolsuper or rolbypassrls)
        order by rolname
        limit 1
    ) as "unrestricted_role?",
    current_setting('max_connections')::int as "max_connections!",
    -- `reserved_connections` exists since PostgreSQL 16.
    current_setting('superuser_reserved_connections')::int
        + coalesce(current_setting('reserved_connections', true)::int, 0)
        as "reserved_connections!",
    pg_size_bytes(current_setting('shared_buffers')) as "shared_buffers_bytes!",
    current_setting('autovacuum')::boolean as "autovacuum!",
    current_setting('track_counts')::boolean as "track_counts!",
    current_setting('default_statistics_target')::int as "statistics_target!",
    current_setting('wal_level') as "wal_level!",
    current_setting('synchronous_standby_names') as "synchronous_standby_names!",
    current_setting('jit')::boolean as "jit!",
    (
        select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout'
    ) as "idle_in_transaction_ms!",
    (
        select setting::bigint from pg_settings where name = 'statement_timeout'
    ) as "statement_timeout_ms!",
    (
        select setting::bigint from pg_settings where name = 'idle_session_timeout'
    ) as "idle_session_ms!"
