-- Deletes the digests of appends that stored an erased message: a digest of a short text tells the
-- text. $3, $4: the erased messages, as runs of ids in order. $5: most messages of an append, $6:
-- of a run. An empty digest equals that of every repetition
-- (store/src/messages/append/append_one.rs).
update ai_message as m
set request_digest = ''
where m.tenant_id = $1
  and m.conversation_id = $2
  and m.message_id = any (array(
      select head.message_id
      from unnest((select $3::bigint[]), (select $4::bigint[])) as run (first, last)
      cross join lateral (
          select message_id, request_messages from ai_message
          where tenant_id = $1
            and conversation_id = $2
            and message_id > run.first - $5::bigint
            and message_id <= run.last
            and request_id is not null
          order by message_id
          -- Forces a lookup by key for each run.
          limit $5::bigint + $6::bigint
      ) as head
      where head.message_id + head.request_messages > run.first
  ))
