-- The beginnings of the texts of messages ($3), each of at most $4 characters, the model whose call
-- was reported with each, and whether it was stopped. A withdrawn message has the text that it had,
-- unless its content is erased.
--
-- PostgreSQL cannot decode \u0000, JSON's escape of NUL, so content that has it is read without it,
-- as in standing_title_sources.sql.
select m.message_id as "message_id!", m.stopped as "stopped!", m.created_us as "created_us!", call.model as "model?",
    t.text as "text?"
from unnest((select $3::bigint[])) as asked (message_id)
cross join lateral (
    -- limit 1: forces a nested loop by key, here and below.
    select message_id, coalesce(stopped, false) as stopped, (extract(epoch from created_ts) * 1000000)::bigint as created_us,
        request_id, content, coalesce(version, 1) as version, withdrawn_ts is not null as is_withdrawn
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = asked.message_id
    limit 1
) as m
left join lateral (
    select content from ai_message_version
    where m.is_withdrawn
      and tenant_id = $1
      and conversation_id = $2
      and message_id = m.message_id
      and version = m.version
    limit 1
) as v on true
left join lateral (
    select model from ai_model_call
    where tenant_id = $1
      and conversation_id = $2
      and request_id = m.request_id
    limit 1
) as call on true
cross join lateral (
    select case when m.is_withdrawn then v.content else m.content end as content
) as c
left join lateral (
    select left(string_agg(left(part ->> 'text', $4), E'\n\n' order by place), $4) as text
    from json_array_elements(
        case
            when position('\u0000' in c.content::text) = 0 then c.content
            else regexp_replace(c.content::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1', 'g')::json
        end
    ) with ordinality as parts (part, place)
    where part ->> 'type' = 'text'
) as t on true
