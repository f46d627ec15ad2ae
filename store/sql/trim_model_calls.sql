-- Deletes up to $4 reported model calls of these conversations ($2) that are older than $3 days.
-- Rows that another transaction has locked stay. `is true`: see trim_context_prefixes.sql.
with old as materialized (
    select m.row_id
    from unnest((select $2::uuid[])) as walked (conversation_id)
    cross join lateral (
        select ctid as row_id from ai_model_call
        where conversation_id = walked.conversation_id
          and (tenant_id = $1) is true
          and created_ts < now() - $3::integer * interval '1 day'
        limit $4
        for update skip locked
    ) as m
    limit $4
)
delete from ai_model_call
where ctid = any (array(select row_id from old))
  and (tenant_id = $1) is true
