-- Objects that prevent the older tables from being dropped. They depend on the tables, or on
-- objects that are dropped with the tables (columns, sequences, row types, keys), and are not
-- dropped themselves. PostgreSQL uses the same rules to refuse a `drop table`.
with recursive dropped (classid, objid, older_table) as (
    select 'pg_class'::regclass::oid, oid, oid::regclass from pg_class
    where relnamespace = current_schema()::regnamespace
      and relname in ('ai_conversation', 'ai_message', 'ai_conversation_checkpoint')
    union
    select d.classid, d.objid, dropped.older_table
    from dropped
    join pg_depend as d on d.refclassid = dropped.classid and d.refobjid = dropped.objid
    where d.deptype in ('a', 'i', 'P', 'S')
)
select distinct pg_describe_object(coalesce(o.refclassid, d.classid), coalesce(o.refobjid, d.objid), case
        when o.objid is null then d.objsubid
        else 0
    end) || ' depends on ' || dropped.older_table as sentence
from dropped
join pg_depend as d on d.refclassid = dropped.classid and d.refobjid = dropped.objid
-- A view depends on a table through its rule. The view is reported, because users know its name.
left join pg_depend as o on o.classid = d.classid and o.objid = d.objid and o.deptype = 'i'
where d.deptype = 'n'
  and (d.classid, d.objid) not in (select classid, objid from dropped)
order by sentence
limit 20
