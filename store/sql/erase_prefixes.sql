-- Deletes all versions of the beginning of a conversation's contexts ($2) but the newest one. If that
-- is a mark, it loses the hash of the version before it. Returns the number of deleted versions.
with newest as materialized (
    select max(epoch) as epoch from ai_context_prefix
    where tenant_id = $1
      and conversation_id = $2
), deleted as (
    delete from ai_context_prefix
    where tenant_id = $1
      and conversation_id = $2
      and epoch < (select epoch from newest)
    returning 1 as one
), emptied as (
    update ai_context_prefix set prefix_hash = decode(repeat('00', 32), 'hex')
    where tenant_id = $1
      and conversation_id = $2
      and epoch = (select epoch from newest)
      and change_epoch = epoch
)
select count(*) as "deleted!" from deleted
