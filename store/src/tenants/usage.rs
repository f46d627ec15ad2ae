//! How much a tenant has stored, as far as its messages are counted; for operators, which tenants
//! have stored the most.

use anneal_core::caller::{Caller, TenantId};
use uuid::Uuid;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// How much a tenant has stored. Messages that are not counted yet are not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the messages' content, as it is stored.
    pub content_bytes: u64,
}

/// A tenant as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantFigures {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// How much it has stored.
    pub usage: TenantUsage,
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

    /// Lists the `limit` tenants that have stored the most, and those of `others`, of whom there may
    /// be 100. The largest first.
    pub async fn list_largest_tenants(
        &self,
        limit: i64,
        others: &[TenantId],
    ) -> Result<Vec<TenantFigures>, StoreError> {
        let others: Vec<Uuid> = others.iter().map(|tenant| tenant.0).collect();
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let rows = sqlx::query_file!("sql/list_largest_tenants.sql", limit, &others)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let tenants = rows.into_iter().map(|row| TenantFigures {
            id: TenantId(row.tenant_id),
            name: row.name,
            usage: TenantUsage::of(row.messages, row.content_bytes),
        });
        Ok(tenants.collect())
    }
}
