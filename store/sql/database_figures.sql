-- The size of the database in bytes, the number of standbys that stream from it, and the replay lag
-- in seconds: of the standby that is furthest behind, or of this server if it is a standby itself.
-- Null: the role may not read it. For metrics.
select
    case
        when has_database_privilege(current_database(), 'connect')
            or pg_has_role('pg_read_all_stats', 'usage')
        then pg_database_size(current_database())
    end as "size_bytes?",
    case when pg_has_role('pg_read_all_stats', 'usage') then standby.number end as "standbys?",
    case
        when pg_is_in_recovery()
        then extract(epoch from now() - pg_last_xact_replay_timestamp())::double precision
        when pg_has_role('pg_read_all_stats', 'usage') then standby.lag_seconds
    end as "replication_lag_seconds?"
from (
    -- A standby that has replayed everything reports no lag.
    select count(*) as number,
        extract(epoch from max(coalesce(replay_lag, interval '0')))::double precision as lag_seconds
    from pg_stat_replication
    where state = 'streaming'
) as standby
