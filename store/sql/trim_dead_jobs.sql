-- Deletes up to $4 dead jobs of these conversations ($2) that were given up more than $3 days ago.
-- Rows that another transaction has locked stay. `is true`: see trim_context_prefixes.sql.
with old as materialized (
    select j.row_id
    from unnest((select $2::uuid[])) as walked (conversation_id)
    cross join lateral (
        select ctid as row_id from ai_job_dead
        where conversation_id = walked.conversation_id
          and (tenant_id = $1) is true
          and died_ts < now() - $3::integer * interval '1 day'
        limit $4
        for update skip locked
    ) as j
    limit $4
)
delete from ai_job_dead
where ctid = any (array(select row_id from old))
  and (tenant_id = $1) is true
