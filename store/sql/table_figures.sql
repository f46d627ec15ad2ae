-- The size of each of our tables in bytes, with its indexes, and PostgreSQL's estimate of its rows
-- (null: it has never been analyzed). For metrics.
select c.relname::text as "table_name!", pg_total_relation_size(c.oid) as "size_bytes?",
    nullif(c.reltuples, -1)::double precision as "rows?"
from pg_class as c
where c.relkind = 'r'
  and c.relnamespace = (
    select m.relnamespace from pg_class as m where m.oid = 'ai_message'::regclass
  )
  and (c.relname like 'ai\_%' or c.relname in ('api_key', 'tenant', 'tenant_usage', 'tenant_usage_part'))
order by c.relname
