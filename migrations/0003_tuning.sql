-- Storage settings of PostgreSQL itself. Engines that refuse them may leave this file out; nothing depends on it.

-- Counting and summarising update rows in place: room on the page keeps those updates out of the indexes.
alter table ai_message set (fillfactor = 90);
alter table ai_conversation set (fillfactor = 70);
-- A queue's rows live for milliseconds: vacuum by number, not by share.
alter table ai_job set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);

-- lz4 compresses several times faster than pglz; builds without it keep pglz.
do $$
begin
    alter table ai_message alter column content set compression lz4;
exception
    when feature_not_supported then null;
end
$$;
