-- Deletes up to $4 recorded beginnings of contexts of these conversations ($2), and keeps the
-- newest $3 of each. Their numbers are consecutive. Rows that another transaction has locked stay.
-- `is true` keeps conditions on the tenant ($1) out of index conditions, so that the rows are found
-- by the conversations, and deleted by their row ids, in every plan.
with old as materialized (
    select p.row_id
    from unnest((select $2::uuid[])) as walked (conversation_id)
    cross join lateral (
        select ctid as row_id from ai_context_prefix
        where conversation_id = walked.conversation_id
          and (tenant_id = $1) is true
          and epoch <= (
              select max(epoch) from ai_context_prefix
              where conversation_id = walked.conversation_id
                and (tenant_id = $1) is true
          ) - $3::bigint
        order by epoch
        limit $4
        for update skip locked
    ) as p
    limit $4
)
delete from ai_context_prefix
where ctid = any (array(select row_id from old))
  and (tenant_id = $1) is true
