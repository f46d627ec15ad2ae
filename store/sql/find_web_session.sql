-- A session of the page that is valid now, with the name and the verbs of its holder. It ends with the key that has signed in.
select s.tenant_id, t.name as tenant_name, s.key_id as "key_id?", coalesce(k.verbs, s.verbs, 0::smallint) as "verbs!",
    coalesce(k.name, s.subject) as "holder!", k.bound_kind as "bound_kind?", k.bound_id as "bound_id?",
    s.bound_digest, s.token_key,
    row_security_active('ai_conversation') as "has_policies!",
    (extract(epoch from least(s.expires_ts, k.expires_ts) - now()) * 1000000)::bigint as "ends_in_us!"
from web_session as s
join tenant as t on t.tenant_id = s.tenant_id
left join api_key as k on k.key_id = s.key_id
where s.session_digest = $1 and s.expires_ts > now()
    and (s.key_id is null or k.key_id is not null and k.revoked_ts is null and (k.expires_ts is null or k.expires_ts > now()))
