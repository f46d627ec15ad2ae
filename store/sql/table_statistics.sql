-- Tables of the schema with at least $1 rows, dead ones included, by PostgreSQL's own statistics.
select
    relname::text as "name!",
    n_live_tup as "live_rows!",
    n_dead_tup as "dead_rows!",
    last_analyze is not null or last_autoanalyze is not null as "is_analyzed!"
from pg_stat_user_tables
where schemaname = current_schema() and n_live_tup + n_dead_tup >= $1
order by relname
limit 100
