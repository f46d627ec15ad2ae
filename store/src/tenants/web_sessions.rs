//! Sessions of people who have signed in to the page. The table `web_session` has no row-level
//! security, because it is read before the tenant is known.

use std::time::Duration;

use anneal_core::caller::{Bound, TenantId, Verbs};
use uuid::Uuid;

use super::credentials::{bound, verbs};
use crate::{Store, connection::row_security::Scope, error::StoreError};

/// Most sessions of one key, or of one subject of a tenant. The oldest ones end.
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
    /// The key that has signed in. None: a token has.
    pub key: Option<Uuid>,
    /// The subject of the token; empty: a key has signed in.
    pub subject: &'a str,
    /// The verbs of the token. Those of a key are looked up.
    pub verbs: Verbs,
    /// How long the session lasts unless it is extended.
    pub idle: Duration,
    /// How long it can be extended.
    pub longest: Duration,
}

/// A session that is valid now. A key that has been revoked since has none.
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
    /// The name of the key, or the subject of the token.
    pub holder: String,
    /// Time until the session ends, or its key, from the moment at which it was read.
    pub ends_in: Duration,
}

impl Store {
    /// Stores a session. Deletes expired ones, and the oldest ones of the same holder above 50.
    pub async fn put_web_session(&self, new: &NewWebSession<'_>) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query_file!(
            "sql/put_web_session.sql",
            new.digest.as_slice(),
            new.tenant.0,
            new.key,
            new.subject,
            new.key.is_none().then_some(i16::from(new.verbs.bits())),
            new.idle.as_secs_f64(),
            new.longest.as_secs_f64(),
            MAX_SESSIONS - 1,
            MAX_EXPIRED,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Finds a session. None if it does not exist or has expired, or if its key has expired or was
    /// revoked.
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
        Ok(Some(ActiveWebSession {
            tenant: TenantId(row.tenant_id),
            tenant_name: row.tenant_name,
            verbs: verbs(row.verbs),
            bound: bound(row.bound_kind, row.bound_id.as_deref())?,
            has_policies: row.has_policies,
            key: row.key_id,
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
}
