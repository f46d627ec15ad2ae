-- The columns of all tables and views that have names of ours, in every schema of the search path,
-- the current schema first. Names and types of the columns show whether they are the tables of an
-- older system.
select n.nspname::text as schema_name, path.place, c.relname::text as table_name,
    c.relkind = 'r' as plain, a.attname::text as name, t.typname::text as type_name, t.typtype = 'e' as enumerated,
    a.attnotnull as required
from unnest(current_schemas(false)) with ordinality as path (schema_name, place)
join pg_namespace as n on n.nspname = path.schema_name
join pg_class as c on c.relnamespace = n.oid
join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_type as t on t.oid = a.atttypid
where c.relname in ('ai_conversation', 'ai_message', 'ai_conversation_checkpoint')
  and c.relkind in ('r', 'p', 'v', 'm', 'f')
order by path.place, c.relname, a.attnum
limit 5000
