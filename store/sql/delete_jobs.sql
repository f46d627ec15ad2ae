-- Deletes the jobs of conversations ($3), waiting and running ones. $2: all kinds. The caller has
-- locked the conversations' rows. Jobs are locked by kind, then by conversation, as heartbeats and
-- results lock them, so that these do not deadlock with a deletion of several conversations. Rows
-- are found by key in every plan (see claim_jobs.sql).
with held as materialized (
    select locked.kind, locked.conversation_id
    from (
        select kind, conversation_id
        from unnest((select $2::smallint[])) as every (kind)
        cross join unnest((select $3::uuid[])) as deleted (conversation_id)
        order by kind, conversation_id
    ) as asked
    cross join lateral (
        -- limit 1: forces a nested loop by key, which locks the rows in this order.
        select kind, conversation_id from ai_job
        where kind = asked.kind
          and conversation_id = asked.conversation_id
          and (tenant_id = $1) is true
        limit 1
        for update
    ) as locked
)
delete from ai_job
where kind = any ($2)
  and conversation_id = any (array(select conversation_id from held))
  and (tenant_id = $1) is true
