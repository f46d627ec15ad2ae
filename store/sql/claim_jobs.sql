-- Claims up to $2 due jobs of a kind ($1), at most $3 of each tenant and none of the tenants in $9.
-- Tenants are examined in the order of their ids, after the tenant $4.
-- - `tenants` examines the tenants with waiting jobs, one index step each, until $2 of them have a
--   due job or $8 were examined.
-- - `candidate` takes the oldest due jobs of each tenant: an equal share of $2, or a quarter of $2
--   if that is more.
-- - `pick` locks the rows of at most $2 candidates, and skips rows that are locked already.
-- - `claimed` gives them the lease $6 for $7 seconds, to the worker $5.
-- A row without a conversation says that tenants after this one were not examined.
--
-- PostgreSQL may plan this statement while the queue is empty, and keep the plan when the queue is
-- long. So the statement must read by keys in every plan:
-- - A condition on a job's key is written so that only the primary key fits it. `(state = 0) is
--   true` fits no partial index. With `(kind = $1) is true`, the key cannot be searched by the kind
--   alone.
-- - There is no join that could become a scan of the whole table.
-- - Subqueries that must use an index of waiting jobs also ask for the order of that index.
with recursive tenants (tenant_id, steps, due_tenants, is_due) as (
    select $4::uuid, 0, 0, false
    union all
    select following.tenant_id, tenants.steps + 1, tenants.due_tenants + examined.is_due::integer, examined.is_due
    from tenants
    cross join lateral (
        select tenant_id from ai_job
        where kind = $1
          and state = 0
          and tenant_id > tenants.tenant_id
        order by tenant_id
        limit 1
    ) as following
    cross join lateral (
        -- One subquery per priority: the index has the order of priority and time, so each reads
        -- one row.
        select following.tenant_id <> all ($9::uuid[]) and coalesce((
            select true from ai_job
            where kind = $1
              and state = 0
              and tenant_id = following.tenant_id
              and priority = -1
              and due_ts <= now()
            order by due_ts
            limit 1
        ), (
            select true from ai_job
            where kind = $1
              and state = 0
              and tenant_id = following.tenant_id
              and priority = 0
              and due_ts <= now()
            order by due_ts
            limit 1
        ), false) as is_due
    ) as examined
    where tenants.due_tenants < $2::bigint
      and tenants.steps < $8::integer
), share as materialized (
    select least($3::bigint, greatest($2::bigint / 4, ceil($2::numeric / nullif(count(*), 0))))::bigint as jobs
    from tenants
    where is_due
), candidate as (
    select due.conversation_id, due.priority, due.due_ts,
        row_number() over (partition by tenants.tenant_id order by due.priority, due.due_ts) as place
    from tenants
    cross join lateral (
        select oldest.conversation_id, oldest.priority, oldest.due_ts
        from (values (-1::smallint), (0::smallint)) as by (priority)
        cross join lateral (
            select conversation_id, priority, due_ts from ai_job
            where kind = $1
              and state = 0
              and tenant_id = tenants.tenant_id
              and priority = by.priority
              and due_ts <= now()
            order by due_ts
            limit (select jobs from share)
        ) as oldest
        order by oldest.priority, oldest.due_ts
        limit (select jobs from share)
    ) as due
    where tenants.is_due
), pick as materialized (
    select locked.conversation_id
    from (
        select conversation_id
        from (select conversation_id from candidate order by place, priority, due_ts limit $2) as first
        order by conversation_id
    ) as chosen
    cross join lateral (
        -- limit 1: forces a nested loop by key, which locks the rows in this order.
        select conversation_id from ai_job
        where kind = $1
          and conversation_id = chosen.conversation_id
          and (state = 0) is true
          and due_ts <= now()
        limit 1
        for update skip locked
    ) as locked
), claimed as (
    update ai_job as j
    set state = 1,
        attempts = j.attempts + 1,
        lease = $6::uuid,
        lease_until_ts = now() + $7::double precision * interval '1 second',
        worker = $5
    where (j.kind = $1) is true
      and j.conversation_id = any (array(select conversation_id from pick))
    returning j.conversation_id, j.tenant_id, j.generation, j.attempts, j.argument::text as argument,
        j.trace_context
)
select tenant_id as "tenant_id!", conversation_id as "conversation_id?", generation as "generation?",
    attempts as "attempts?", argument as "argument?", trace_context as "trace_context?"
from claimed
union all
(
    select tenant_id, null, null, null, null, null from tenants
    where due_tenants >= $2
       or steps >= $8
    order by steps desc
    limit 1
)
