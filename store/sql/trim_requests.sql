-- Deletes up to $4 answers of calls of these conversations ($2) that are older than $3 days, but
-- none of an append. Rows that another transaction has locked stay. `is true`: see
-- trim_context_prefixes.sql.
with old as materialized (
    select r.row_id
    from unnest((select $2::uuid[])) as walked (conversation_id)
    cross join lateral (
        select ctid as row_id from ai_request
        where conversation_id = walked.conversation_id
          and (tenant_id = $1) is true
          and method <> 'append_messages'
          and created_ts < now() - $3::integer * interval '1 day'
        limit $4
        for update skip locked
    ) as r
    limit $4
)
delete from ai_request
where ctid = any (array(select row_id from old))
  and (tenant_id = $1) is true
