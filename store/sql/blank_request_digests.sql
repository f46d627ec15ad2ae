-- Deletes the digests of requests that brought erased content: edits of an erased message, turns that
-- answered it after an edit, and imports of a checkpoint that may cover one. $3: the erased messages. An empty digest equals that
-- of every repetition (store/src/idempotency.rs).
update ai_request as r
set request_digest = ''
where r.tenant_id = $1
  and r.conversation_id = $2
  and (
      -- The answer of an import is the first message that the checkpoint covers.
      r.method = 'import_checkpoint' and r.answer <= (select max(message_id) from unnest($3::bigint[]) as erased (message_id))
      -- The answer of a turn is the last message of its question.
      or r.method = 'chat_anew' and (r.answer in (select unnest($3::bigint[]))) is true
      -- The answer of an edit is the number of the change, or 0 if the message had the content already.
      -- Then nothing says which message it was.
      or r.method = 'edit_message' and (r.answer = 0 or r.answer in (
          select c.change_id from ai_message_change as c
          where c.tenant_id = $1
            and c.conversation_id = $2
            and c.kind = 3
            -- An edit changes one message. `is true` forces a lookup by hash: a join would compare
            -- each edit with each erased message.
            and (c.first_ids[1] in (select unnest($3::bigint[]))) is true
      ))
  )
