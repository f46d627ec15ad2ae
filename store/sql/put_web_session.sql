-- Stores a session of the page. Deletes up to $9 expired ones, and those of the same holder that are older than its $8 newest.
with expired as (
    delete from web_session
    where session_digest in (
        select session_digest from web_session where expires_ts <= now() order by expires_ts limit $9 for update skip locked
    )
), oldest as (
    delete from web_session
    where session_digest in (
        select session_digest from web_session
        where tenant_id = $2 and key_id is not distinct from $3 and subject = $4 and expires_ts > now()
        order by began_ts desc offset $8
    )
)
insert into web_session (session_digest, tenant_id, key_id, subject, verbs, expires_ts, ends_ts)
values (
    $1, $2, $3, $4, $5,
    now() + least($6::double precision, $7::double precision) * interval '1 second',
    now() + $7::double precision * interval '1 second'
)
