-- Begins the erasure of a user or of a tenant. $3: its kind. $6: the user, $7: the digest by which
-- the user's erasures are found; null: a tenant. $8: the digest of no ids. Does nothing if another
-- call with the same request id has begun it.
insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, user_id, subject_digest, ids_digest)
values ($1, $2, $3, 0, $4, $5, $6, $7, $8)
on conflict (erasure_id) do nothing
