-- Extends the leases of jobs of a kind by $4 seconds from now ($1: the kind, $2: conversations, $3:
-- leases). A job that has lost its lease has no row in the result. Rows are locked in the order of
-- conversations, as in finish_jobs.sql, and are found by key in every plan (see claim_jobs.sql).
with held as materialized (
    select mine.conversation_id
    from (
        select conversation_id, lease
        from unnest((select $2::uuid[]), (select $3::uuid[])) as mine (conversation_id, lease)
        order by conversation_id
    ) as mine
    cross join lateral (
        select conversation_id from ai_job
        where kind = $1
          and conversation_id = mine.conversation_id
          and lease = mine.lease
          and (state = 1) is true
        limit 1
        for update
    ) as locked
)
update ai_job
set lease_until_ts = now() + $4::double precision * interval '1 second'
where (kind = $1) is true
  and conversation_id = any (array(select conversation_id from held))
returning conversation_id
