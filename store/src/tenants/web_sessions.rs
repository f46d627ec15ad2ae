//! Sessions of people who have signed in to the page. The table `web_session` has no row-level
//! security, because it is read before the tenant is known.

use std::time::Duration;

use anneal_core::{
    caller::{Bound, TenantId, Verbs},
    digest::{self, Digest},
};
use uuid::Uuid;

use super::credentials::{bound, verbs};
use crate::{Store, connection::row_security::Scope, error::StoreError};

/// Most sessions of one holder. The oldest ones end.
const MAX_SESSIONS: i64 = 50;
/// Most expired sessions that one sign-in deletes.
const MAX_EXPIRED: i64 = 100;

/// A session to store.
#[derive(Debug, Clone)]
pub struct NewWebSession<'a> {
    /// SHA-256 of the cookie's secret.
    pub digest: [u8; 32],
    /// The tenant that the session speaks for.
    pub tenant: TenantId,
    /// The credential that has signed in.
    pub holder: SessionHolder<'a>,
    /// How long the session lasts unless it is extended.
    pub idle: Duration,
    /// How long it can be extended.
    pub longest: Duration,
}

/// The credential that has signed in.
#[derive(Debug, Clone, Copy)]
pub enum SessionHolder<'a> {
    /// An API key.
    Key {
        /// The id of the key.
        id: Uuid,
        /// The binding of the key. None: it speaks for the whole tenant.
        bound: Option<&'a Bound>,
    },
    /// A token of an identity provider.
    Token {
        /// SHA-256 of the token.
        digest: Digest,
        /// The subject; empty: the token has none.
        subject: &'a str,
        /// The subject as it is shown.
        name: &'a str,
        /// The id (`kid`) of the key that has signed the token.
        key: &'a str,
        /// The verbs of the token. Those of an API key are looked up.
        verbs: Verbs,
    },
}

impl SessionHolder<'_> {
    /// A digest that all sessions of one holder have: of a key, of a subject, or of a token without
    /// one. Tokens without a subject may be those of many people.
    fn digest(&self) -> Digest {
        let fields: [&[u8]; 2] = match self {
            Self::Key { id, .. } => [b"key", id.as_bytes()],
            Self::Token {
                digest,
                subject: "",
                ..
            } => [b"token", digest],
            Self::Token { subject, .. } => [b"subject", subject.as_bytes()],
        };
        digest::of_fields(fields)
    }
}

/// The digest of what a key is bound to. None: nothing.
fn bound_digest(bound: Option<&Bound>) -> Option<Digest> {
    bound.map(|bound| digest::of_content(&bound.setting()))
}

/// A session that is valid now. A key that has been revoked or bound to something else since has
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveWebSession {
    /// The tenant that it speaks for.
    pub tenant: TenantId,
    /// The tenant's name.
    pub tenant_name: String,
    /// The verbs of the key as they are now, or of the token.
    pub verbs: Verbs,
    /// What the key is bound to now. None: nothing, or a token has signed in.
    pub bound: Option<Bound>,
    /// Whether policies of the database restrict what this server sees, as `ActiveKey` says.
    pub has_policies: bool,
    /// The key that has signed in. None: a token has.
    pub key: Option<Uuid>,
    /// The id (`kid`) of the key that has signed the token. None: a key has signed in.
    pub token_key: Option<String>,
    /// The name of the key, or the subject of the token as it is shown.
    pub holder: String,
    /// Time until the session ends, or its key, from the moment at which it was read.
    pub ends_in: Duration,
}

impl Store {
    /// Stores a session. Deletes expired ones, and the oldest ones of the same holder above 50.
    pub async fn put_web_session(&self, new: &NewWebSession<'_>) -> Result<(), StoreError> {
        let (key, bound, name, token_key, verbs) = match new.holder {
            SessionHolder::Key { id, bound } => (Some(id), bound_digest(bound), "", None, None),
            SessionHolder::Token {
                name, key, verbs, ..
            } => (None, None, name, Some(key), Some(verbs.bits())),
        };
        let holder = new.holder.digest();
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query_file!(
            "sql/put_web_session.sql",
            new.digest.as_slice(),
            new.tenant.0,
            holder.as_slice(),
            key,
            bound.as_ref().map(Digest::as_slice),
            name,
            token_key,
            verbs.map(i16::from),
            new.idle.as_secs_f64(),
            new.longest.as_secs_f64(),
            MAX_SESSIONS - 1,
            MAX_EXPIRED,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Finds a session. None if it does not exist or has expired, or if its key has expired, was
    /// revoked or is bound to something else than at the sign-in.
    pub async fn find_web_session(
        &self,
        digest: [u8; 32],
    ) -> Result<Option<ActiveWebSession>, StoreError> {
        let mut db = self.system.checkout(Scope::Nobody).await?;
        let row = sqlx::query_file!("sql/find_web_session.sql", digest.as_slice())
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let bound = bound(row.bound_kind, row.bound_id.as_deref())?;
        if bound_digest(bound.as_ref()).as_ref().map(Digest::as_slice)
            != row.bound_digest.as_deref()
        {
            return Ok(None);
        }
        Ok(Some(ActiveWebSession {
            tenant: TenantId(row.tenant_id),
            tenant_name: row.tenant_name,
            verbs: verbs(row.verbs),
            bound,
            has_policies: row.has_policies,
            key: row.key_id,
            token_key: row.token_key,
            holder: row.holder,
            ends_in: Duration::from_micros(row.ends_in_us.unsigned_abs()),
        }))
    }

    /// Lets a session last `idle` from now, if less than half of that is left of it. It never lasts
    /// longer than its sign-in allowed. Returns whether it lasts longer now.
    pub async fn extend_web_session(
        &self,
        digest: [u8; 32],
        idle: Duration,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        let extended = sqlx::query!(
            "update web_session
             set expires_ts = least(now() + $2::double precision * interval '1 second', ends_ts)
             where session_digest = $1 and expires_ts > now()
                 and expires_ts < least(now() + $2::double precision * interval '0.5 seconds', ends_ts)",
            digest.as_slice(),
            idle.as_secs_f64(),
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(extended.rows_affected() == 1)
    }

    /// Deletes a session, if it exists.
    pub async fn delete_web_session(&self, digest: [u8; 32]) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query!(
            "delete from web_session where session_digest = $1",
            digest.as_slice(),
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Deletes up to `limit` sessions that have expired. Returns how many it deleted.
    pub async fn delete_expired_web_sessions(&self, limit: i64) -> Result<u64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let deleted = sqlx::query!(
            "delete from web_session where session_digest in (
                 select session_digest from web_session where expires_ts <= now() order by expires_ts limit $1 for update skip locked)",
            limit,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(deleted.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::BoundId;

    use super::*;

    fn token<'a>(token: &str, subject: &'a str) -> SessionHolder<'a> {
        SessionHolder::Token {
            digest: digest::of_content(token),
            subject,
            name: subject,
            key: "k",
            verbs: Verbs::default(),
        }
    }

    #[test]
    fn a_key_a_subject_and_a_token_without_one_are_holders() {
        let (id, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let bound = Bound::User(BoundId::new("anna").expect("an id"));
        let key = |id, bound| SessionHolder::Key { id, bound };
        let equal = [
            (key(id, None), key(id, Some(&bound))),
            (token("a", "anna"), token("b", "anna")),
            (token("a", ""), token("a", "")),
        ];
        for (one, same) in equal {
            assert_eq!(one.digest(), same.digest(), "{one:?} {same:?}");
        }
        let different = [
            (key(id, None), key(other, None)),
            (token("a", "anna"), token("a", "bert")),
            (token("a", ""), token("b", "")),
        ];
        for (one, other) in different {
            assert_ne!(one.digest(), other.digest(), "{one:?} {other:?}");
        }
    }
}
