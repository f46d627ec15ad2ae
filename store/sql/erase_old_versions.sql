-- Deletes up to $4 rows of content of a conversation that no longer stands since $3 days. Rows that
-- another transaction has locked stay: a message is restored or erased at this moment. Returns the
-- messages, the number of rows, and their bytes.
with old as materialized (
    select message_id, version
    from ai_message_version
    where tenant_id = $1
      and conversation_id = $2
      and replaced_ts < now() - $3::integer * interval '1 day'
    order by message_id, version
    limit $4
    for update skip locked
), erased as (
    delete from ai_message_version as v
    using old
    where v.tenant_id = $1
      and v.conversation_id = $2
      and v.message_id = old.message_id
      and v.version = old.version
    returning v.message_id, v.content_bytes
)
select coalesce(array_agg(distinct message_id), '{}') as "messages!", count(*) as "rows!",
    coalesce(sum(content_bytes), 0)::bigint as "bytes!"
from erased
