-- Claims up to $2 due jobs of a kind, at most $3 of a tenant, tenants in turn after $4. The first part walks the tenants
-- that have waiting rows by the index, one step each; the second takes their oldest; the third locks and skips.
with recursive tenants (tenant_id, place) as (
    (
        select tenant_id, 1 from ai_job
        where kind = $1
          and state = 0
          and tenant_id > $4
        order by tenant_id
        limit 1
    )
    union all
    select (
        select j.tenant_id from ai_job as j
        where j.kind = $1
          and j.state = 0
          and j.tenant_id > tenants.tenant_id
        order by j.tenant_id
        limit 1
    ), place + 1
    from tenants
    where tenant_id is not null
      and place < $2::bigint
), candidate as (
    select due.conversation_id, due.priority, due.due_ts,
        row_number() over (partition by tenants.tenant_id order by due.priority, due.due_ts) as place
    from tenants
    cross join lateral (
        select conversation_id, priority, due_ts from ai_job
        where kind = $1
          and state = 0
          and tenant_id = tenants.tenant_id
          and due_ts <= now()
        order by priority, due_ts
        limit $3
    ) as due
), pick as materialized (
    select conversation_id from ai_job
    where kind = $1
      and state = 0
      and due_ts <= now()
      and conversation_id = any (array(select conversation_id from candidate order by place, priority, due_ts limit $2))
    order by conversation_id
    for update skip locked
)
update ai_job as j
set state = 1,
    attempts = j.attempts + 1,
    lease = $6::uuid,
    lease_until_ts = now() + $7::double precision * interval '1 second',
    worker = $5
from pick
where j.kind = $1
  and j.conversation_id = pick.conversation_id
returning j.conversation_id as "conversation_id!", j.tenant_id as "tenant_id!", j.generation as "generation!",
    j.attempts as "attempts!", j.argument::text as "argument?"
