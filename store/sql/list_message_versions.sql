-- A page of the versions of a message ($3), newest first, before the version $4 (null: from the
-- newest one on), at most $5. The one that stands has no time at which it was replaced.
select v.version as "version!", v.tokens as "tokens!", v.is_estimated as "estimated!", v.text_bytes as "text_bytes!",
    (extract(epoch from v.created_ts) * 1000000)::bigint as "created_us!",
    (extract(epoch from v.replaced_ts) * 1000000)::bigint as "replaced_us?"
from (
    select coalesce(version, 1) as version, coalesce(token_count, token_estimate) as tokens,
        token_count is null as is_estimated, text_bytes, coalesce(edited_ts, created_ts) as created_ts,
        null::timestamptz as replaced_ts
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = $3
      and withdrawn_ts is null
      and ($4::integer is null or coalesce(version, 1) < $4)
    union all
    (
        select version, coalesce(token_count, token_estimate), token_count is null, text_bytes, created_ts, replaced_ts
        from ai_message_version
        where tenant_id = $1
          and conversation_id = $2
          and message_id = $3
          and version < coalesce($4, 2147483647)
        order by version desc
        limit $5
    )
) as v
order by v.version desc
limit $5
