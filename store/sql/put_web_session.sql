-- Stores a session of the page. Deletes up to $12 expired ones, and those of the same holder ($3) that are older than its $11 newest.
with expired as (
    delete from web_session
    where session_digest in (
        select session_digest from web_session where expires_ts <= now() order by expires_ts limit $12 for update skip locked
    )
), oldest as (
    delete from web_session
    where session_digest in (
        select session_digest from web_session
        where tenant_id = $2 and holder_digest = $3 and expires_ts > now()
        order by began_ts desc offset $11
    )
)
insert into web_session (session_digest, tenant_id, holder_digest, key_id, bound_digest, subject, token_key, verbs, expires_ts, ends_ts)
values (
    $1, $2, $3, $4, $5, $6, $7, $8,
    now() + least($9::double precision, $10::double precision) * interval '1 second',
    now() + $10::double precision * interval '1 second'
)
