//! Looks up keys and tenants, so that a server can identify a caller. The tables `api_key` and
//! `tenant` have no row-level security, because they are read before the tenant is known. So
//! [`Scope::Nobody`] can read them.

use std::time::Duration;

use anneal_core::caller::{Caller, TenantId, Verbs};
use uuid::Uuid;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// A key that is valid now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveKey {
    /// The tenant that the key belongs to.
    pub tenant: TenantId,
    /// The verbs that the key allows.
    pub verbs: Verbs,
    /// SHA-256 of the key's secret part.
    pub secret_digest: Vec<u8>,
    /// Time until the key expires, from the moment at which it was read. None: it never expires.
    pub ends_in: Option<Duration>,
}

impl Store {
    /// Finds a key by its id. None if it does not exist, has expired or was revoked.
    pub async fn find_key(&self, id: Uuid) -> Result<Option<ActiveKey>, StoreError> {
        let mut db = self.system.checkout(Scope::Nobody).await?;
        let row = sqlx::query!(
            "select tenant_id, verbs, secret_digest, (extract(epoch from expires_ts - now()) * 1000000)::bigint as ends_in_us
             from api_key
             where key_id = $1 and revoked_ts is null and (expires_ts is null or expires_ts > now())",
            id,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(row.map(|row| ActiveKey {
            tenant: TenantId(row.tenant_id),
            verbs: verbs(row.verbs),
            secret_digest: row.secret_digest,
            ends_in: row
                .ends_in_us
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        }))
    }

    /// Records that these keys were used in the current hour.
    pub async fn record_key_uses(&self, keys: &[Uuid]) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query!(
            "update api_key set last_used_ts = date_trunc('hour', now())
             where key_id = any($1) and (last_used_ts is null or last_used_ts < date_trunc('hour', now()))",
            keys,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// The key of the codes that say that opaque content of this tenant's clients comes from here:
    /// 32 bytes.
    pub async fn read_seal_key(&self, caller: Caller) -> Result<[u8; 32], StoreError> {
        let mut db = self.system.checkout(Scope::Nobody).await?;
        let key = sqlx::query_scalar!(
            "select seal_key from tenant where tenant_id = $1",
            caller.tenant().0,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        key.and_then(|key| key.try_into().ok())
            .ok_or(StoreError::Unreadable("seal key of a tenant"))
    }

    /// Finds a tenant by its name.
    pub async fn find_tenant(&self, name: &str) -> Result<Option<TenantId>, StoreError> {
        let mut db = self.system.checkout(Scope::Nobody).await?;
        let found = sqlx::query_scalar!("select tenant_id from tenant where name = $1", name)
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        Ok(found.map(TenantId))
    }
}

/// The verbs that a column stores as bits.
pub(super) fn verbs(bits: i16) -> Verbs {
    Verbs::from_bits(u8::try_from(bits).unwrap_or_default())
}
