-- Deletes the responses whose input or output contains one of these messages. $3, $4: the messages, as
-- runs of ids in order. The input is every message after after_message_id up to question_last_id. Of
-- a response whose input is not recorded, any later message may belong to it.
delete from ai_response as r
where r.conversation_id = $2
  and (r.tenant_id = $1) is true
  and exists (
      select from unnest($3::bigint[], $4::bigint[]) as run (first, last)
      where run.last > r.after_message_id
        and (
            run.first <= coalesce(r.question_last_id, run.first)
            or r.answer_message_id between run.first and run.last
        )
  )
