-- Deletes the digests of requests that brought erased content: edits of an erased message, and
-- imports of a checkpoint that may cover one. $3, $4: the erased messages, as runs of ids in order.
-- An empty digest equals that of every repetition (store/src/idempotency.rs).
update ai_request as r
set request_digest = ''
where r.tenant_id = $1
  and r.conversation_id = $2
  and (
      -- The answer of an import is the first message that the checkpoint covers.
      r.method = 'import_checkpoint' and r.answer <= (select max(last) from unnest($4::bigint[]) as run (last))
      -- The answer of an edit is the number of the change, or 0 if the message had the content already.
      -- Then nothing says which message it was.
      or r.method = 'edit_message' and (r.answer = 0 or exists (
          select from ai_message_change as c
          cross join unnest($3::bigint[], $4::bigint[]) as run (first, last)
          where c.tenant_id = $1
            and c.conversation_id = $2
            and c.change_id = r.answer
            and run.first <= c.last_ids[1]
            and run.last >= c.first_ids[1]
      ))
  )
