-- The alternatives of a question ($3), newest first, at most $4. "answer_id": the first message of
-- the assistant among the messages of the alternative; "stands": whether that message stands.
select a.number, a.question_version, a.first_ids, a.last_ids, answer.message_id as "answer_id?",
    coalesce(answer.stands, false) as "stands!"
from ai_alternative as a
left join lateral (
    select m.message_id, m.stands
    from unnest(a.first_ids, a.last_ids) as run (first, last)
    cross join lateral (
        select message_id, withdrawn_ts is null as stands from ai_message
        where tenant_id = $1
          and conversation_id = $2
          and message_id between run.first and run.last
          and role = 2
        order by message_id
        limit 1
    ) as m
    order by m.message_id
    limit 1
) as answer on true
where a.tenant_id = $1
  and a.conversation_id = $2
  and a.question_id = $3
order by a.number desc
limit $4
