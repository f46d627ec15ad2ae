-- Content that does not stand: the versions after version $4 of message $3, at most $5. "is_too_new"
-- says whether the message's row has this version or an earlier one. "digest_matches" says whether
-- the content has its stored digest, which the database computes again only if $6.
select v.message_id, v.version, m.is_too_new as "is_too_new!",
    case
        when $6::boolean then sha256(convert_to(v.content::text, 'UTF8')) = v.content_digest
        else true
    end as "digest_matches!"
from ai_message_version as v
cross join lateral (
    -- limit 1: forces a lookup by key.
    select case
        when withdrawn_ts is null then v.version >= coalesce(version, 1)
        else v.version > coalesce(version, 1)
    end as is_too_new
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id = v.message_id
    limit 1
) as m
where v.tenant_id = $1
  and v.conversation_id = $2
  and (v.message_id, v.version) > ($3::bigint, $4::integer)
order by v.message_id, v.version
limit $5
