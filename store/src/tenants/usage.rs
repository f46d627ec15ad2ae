//! How much a tenant has stored, as far as workers have counted it.

use anneal_core::caller::Caller;

use crate::{Store, error::StoreError};

/// How much a tenant has stored. Messages that are not counted yet are not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the messages' content, as it is stored.
    pub content_bytes: u64,
}

impl TenantUsage {
    /// The usage that a row of `tenant_usage` stores. Its columns are never negative.
    pub(crate) const fn of(messages: i64, content_bytes: i64) -> Self {
        Self {
            messages: messages.unsigned_abs(),
            content_bytes: content_bytes.unsigned_abs(),
        }
    }
}

impl Store {
    /// Reads how much the caller's tenant has stored.
    pub async fn read_tenant_usage(&self, caller: Caller) -> Result<TenantUsage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query!(
            "select messages, content_bytes from tenant_usage where tenant_id = $1",
            caller.tenant().0
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(row
            .map(|row| TenantUsage::of(row.messages, row.content_bytes))
            .unwrap_or_default())
    }
}
