//! How much a tenant has stored, as far as its messages are counted.

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
    /// The usage with these sums. They can be negative if workers of older versions counted
    /// messages that were deleted since: then nothing is stored, as far as is known.
    pub(crate) fn of(messages: i64, content_bytes: i64) -> Self {
        Self {
            messages: messages.max(0).unsigned_abs(),
            content_bytes: content_bytes.max(0).unsigned_abs(),
        }
    }
}

impl Store {
    /// Reads how much the caller's tenant has stored.
    pub async fn read_tenant_usage(&self, caller: Caller) -> Result<TenantUsage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query_file!("sql/tenant_usage.sql", caller.tenant().0)
            .fetch_one(&mut *db)
            .await?;
        db.release().await?;
        Ok(TenantUsage::of(row.messages, row.content_bytes))
    }
}
