//! Looks up keys and tenants, so that a server can identify a caller. The tables `api_key` and
//! `tenant` have no row-level security, because they are read before the tenant is known. So
//! [`Scope::Nobody`] can read them.

use std::time::Duration;

use anneal_core::caller::{Bound, BoundId, Caller, ConversationId, TenantId, Verbs};
use uuid::Uuid;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// A key that is valid now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveKey {
    /// The tenant that the key belongs to.
    pub tenant: TenantId,
    /// The verbs that the key allows.
    pub verbs: Verbs,
    /// The user, agent or conversation that the key is bound to. None: it speaks for the whole
    /// tenant.
    pub bound: Option<Bound>,
    /// Whether policies of the database restrict what this server sees. False: its role owns the
    /// tables, so that a binding would have no effect.
    pub has_policies: bool,
    /// SHA-256 of the key's secret part; of a bound key, of secret and binding.
    pub secret_digest: Vec<u8>,
    /// Time until the key expires, from the moment at which it was read. None: it never expires.
    pub ends_in: Option<Duration>,
}

impl Store {
    /// Finds a key by its id. None if it does not exist, has expired or was revoked.
    pub async fn find_key(&self, id: Uuid) -> Result<Option<ActiveKey>, StoreError> {
        let mut db = self.system.checkout(Scope::Nobody).await?;
        let row = sqlx::query!(
            r#"select tenant_id, verbs, secret_digest, bound_kind, bound_id,
                   row_security_active('ai_conversation') as "has_policies!",
                   (extract(epoch from expires_ts - now()) * 1000000)::bigint as ends_in_us
               from api_key
               where key_id = $1 and revoked_ts is null and (expires_ts is null or expires_ts > now())"#,
            id,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let Some(row) = row else {
            return Ok(None);
        };
        Ok(Some(ActiveKey {
            tenant: TenantId(row.tenant_id),
            verbs: verbs(row.verbs),
            bound: bound(row.bound_kind, row.bound_id.as_deref())?,
            has_policies: row.has_policies,
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
        let mut db = self.reads.checkout(caller).await?;
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

/// The codes of the column `bound_kind`.
const USER: i16 = 1;
const AGENT: i16 = 2;
const CONVERSATION: i16 = 3;

/// The binding that the columns `bound_kind` and `bound_id` store. A binding that cannot be read is
/// an error, never no binding.
pub(super) fn bound(kind: Option<i16>, id: Option<&str>) -> Result<Option<Bound>, StoreError> {
    let read = match (kind, id) {
        (None, None) => return Ok(None),
        (Some(USER), Some(id)) => BoundId::new(id).map(Bound::User),
        (Some(AGENT), Some(id)) => BoundId::new(id).map(Bound::Agent),
        (Some(CONVERSATION), Some(id)) => Uuid::try_parse(id)
            .ok()
            .map(|id| Bound::Conversation(ConversationId(id))),
        _ => None,
    };
    read.map(Some)
        .ok_or(StoreError::Unreadable("binding of a key"))
}

/// The columns `bound_kind` and `bound_id` for a binding.
pub(super) fn bound_columns(bound: Option<&Bound>) -> (Option<i16>, Option<String>) {
    match bound {
        None => (None, None),
        Some(Bound::User(id)) => (Some(USER), Some(id.as_str().to_owned())),
        Some(Bound::Agent(id)) => (Some(AGENT), Some(id.as_str().to_owned())),
        Some(Bound::Conversation(id)) => (Some(CONVERSATION), Some(id.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read_as_they_were_stored_and_others_are_errors() {
        let id = BoundId::new("anna").expect("an id");
        let stored = [
            None,
            Some(Bound::User(id)),
            Some(Bound::Agent(id)),
            Some(Bound::Conversation(ConversationId(Uuid::from_u128(7)))),
        ];
        for binding in stored {
            let (kind, id) = bound_columns(binding.as_ref());
            assert_eq!(bound(kind, id.as_deref()).expect("reads"), binding);
        }
        for (kind, id) in [
            (Some(1), None),
            (None, Some("anna")),
            (Some(1), Some("")),
            (Some(3), Some("anna")),
            (Some(4), Some("anna")),
        ] {
            assert!(bound(kind, id).is_err(), "{kind:?} {id:?}");
        }
    }
}
