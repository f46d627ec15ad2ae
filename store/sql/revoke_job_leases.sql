-- Ends the leases of a conversation's running jobs: what their workers have read does no longer
-- hold, and what they write is refused. The jobs wait again, and these starts do not count. Returns
-- the kinds of these jobs. $3: all kinds.
--
-- All jobs are locked, running or not, so that none is claimed until the change is committed: a
-- claim skips locked rows. New jobs cannot appear meanwhile, because their transactions lock the
-- conversation's row, which the caller has locked. Rows are found by key in every plan (see
-- claim_jobs.sql).
with held as materialized (
    select locked.kind, locked.is_running
    from (select kind from unnest((select $3::smallint[])) as every (kind) order by kind) as asked
    cross join lateral (
        -- limit 1: forces a nested loop by key, which locks the rows in this order.
        select kind, (state = 1) is true as is_running from ai_job
        where kind = asked.kind
          and conversation_id = $2
          and (tenant_id = $1) is true
        limit 1
        for update
    ) as locked
), ended as (
    update ai_job
    set state = 0, lease = null, lease_until_ts = null, worker = null, attempts = greatest(attempts - 1, 0)::smallint,
        generation = generation + 1, due_ts = now()
    where kind = any (array(select kind from held where is_running))
      and conversation_id = $2
      and (tenant_id = $1) is true
)
-- Reads all of `held`, so that all jobs are locked.
select kind as "kind!" from held
where is_running
