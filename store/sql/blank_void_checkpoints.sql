-- Deletes what the checkpoints that no longer hold say of erased messages. $3, $4: these messages,
-- as runs of ids in order. The rows stay, without the text and without the digest of their sources.
update ai_void_checkpoint as k
set summary = '', focus = '', source_digest = ''
where k.tenant_id = $1
  and k.conversation_id = $2
  and k.last_message_id >= ($3::bigint[])[1]
  and octet_length(k.source_digest) > 0
  and exists (
      select from unnest($3::bigint[], $4::bigint[]) as run (first, last)
      where run.first <= k.last_message_id
        and run.last >= k.first_message_id
  )
