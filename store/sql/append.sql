-- Appends messages to one conversation: ids under its row lock, the rows, and the job that counts them, in one statement.
-- No row when the conversation is not the caller's, its newest message is not the expected one ($8), there are tool calls or
-- results among the messages ($22) and its policy keeps none ($23: settings by profile), or the request id ($9) is that of an
-- append of which nothing was kept. The messages' title ($24) becomes the conversation's where it has none and none was set.
with moved as (
    update ai_conversation as c
    set last_message_id = c.last_message_id + $3,
        last_role = $4,
        turn = c.turn + case when c.last_role = 1 then $5::integer else $6::integer end,
        token_total = c.token_total + case when c.encoding = 1 then $7::bigint else $21::bigint end,
        title = case when c.title_given or c.title <> '' then c.title else coalesce($24::text, '') end,
        last_activity_ts = now()
    where c.tenant_id = $1
      and c.conversation_id = $2
      and ($8::bigint is null or c.last_message_id = $8)
      and (not $22::boolean or coalesce(c.policy ->> 'store_tool_messages',
          $23::text::jsonb -> coalesce(c.policy ->> 'profile', '') ->> 'store_tool_messages') is distinct from 'false')
      and ($9::text is null or not exists (
          select from ai_request
          where conversation_id = $2
            and method = 'append_messages'
            and request_id = $9
      ))
    returning c.last_message_id - $3 as before_id, c.turn, c.encoding
), stored as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content, content_digest,
        tool_outline, metadata, request_id, request_digest, request_messages
    )
    select $1, $2, moved.before_id + new.place, new.role, moved.turn - new.starts_after,
        case when moved.encoding = 1 then new.o200k_estimate else new.cl100k_estimate end, new.text_bytes,
        new.content::json, new.content_digest, new.tool_outline::json, new.metadata::jsonb,
        case when new.place = 1 then $9::text end,
        case when new.place = 1 then $10::bytea end,
        case when new.place = 1 and $9 is not null then $3::bigint::smallint end
    from moved
    cross join unnest(
        $11::smallint[], $12::integer[], $13::bigint[], $20::bigint[], $14::bigint[], $15::text[], $16::bytea[],
        $17::text[], $18::text[]
    ) with ordinality as new (
        role, starts_after, o200k_estimate, cl100k_estimate, text_bytes, content, content_digest, tool_outline, metadata,
        place
    )
), job as (
    insert into ai_job as j (tenant_id, kind, conversation_id)
    select $1, $19::smallint, $2 from moved
    on conflict (kind, conversation_id) do update set generation = j.generation + 1
)
select moved.before_id as "before_id!", moved.turn, moved.encoding from moved
