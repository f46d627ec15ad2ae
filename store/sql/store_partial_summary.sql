-- Stores a finished part of a summary ($4: its digest), if the job (kind $3) still has the lease
-- $9. The lock on the job's row makes a change of messages, which ends the leases and then deletes
-- all parts, wait for this statement. The conversation's row is locked first, as everywhere: its
-- deletion deletes the jobs. Does nothing if the part is stored already.
with conversation as materialized (
    select tenant_id, conversation_id from ai_conversation
    where tenant_id = $1
      and conversation_id = $2
    for key share
), held as materialized (
    select c.tenant_id, c.conversation_id
    from conversation as c
    cross join lateral (
        select kind from ai_job
        where kind = $3
          and conversation_id = c.conversation_id
          and lease = $9
          and (state = 1) is true
        limit 1
        for share
    ) as locked
)
insert into ai_summary_part (
    tenant_id, conversation_id, kind, part_digest, summary, model_calls, input_tokens, output_tokens
)
select tenant_id, conversation_id, $3, $4, $5, $6, $7, $8 from held
on conflict (conversation_id, kind, part_digest) do nothing
