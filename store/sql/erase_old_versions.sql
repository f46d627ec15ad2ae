-- Deletes up to $4 rows of content of a conversation that no longer stands since $3 days, and no
-- further one after $5 bytes. Rows that another transaction has locked stay: a message is restored
-- or erased at this moment. Returns the messages and their versions, in order, the number of rows,
-- their bytes, and whether one of the limits may have kept others. `is true` keeps the condition on
-- the tenant ($1) out of index conditions, so that the rows are deleted by their row ids in every
-- plan.
with locked as materialized (
    select ctid as row_id, message_id, version, content_bytes
    from ai_message_version
    where tenant_id = $1
      and conversation_id = $2
      and replaced_ts < now() - $3::integer * interval '1 day'
    order by message_id, version
    limit $4
    for update skip locked
), old as materialized (
    select row_id
    from (
        select row_id,
            sum(content_bytes) over (order by message_id, version) - content_bytes as bytes_before
        from locked
    ) as measured
    where bytes_before < $5::bigint
), erased as (
    delete from ai_message_version
    where ctid = any (array(select row_id from old))
      and (tenant_id = $1) is true
    returning message_id, version, content_bytes
)
select coalesce(array_agg(message_id order by message_id, version), '{}') as "messages!",
    coalesce(array_agg(version order by message_id, version), '{}') as "versions!",
    count(*) as "rows!", coalesce(sum(content_bytes), 0)::bigint as "bytes!",
    ((select count(*) from locked) >= $4 or (select count(*) from locked) > count(*)) as "has_more!"
from erased
