//! Retention: deletes what the operator's limits keep no longer. A worker walks through the
//! conversations of a tenant, step by step. A step looks at a bounded number of conversations and
//! deletes a bounded number of rows, except that a large conversation is deleted at once. It passes
//! over rows that other transactions use and rows that cannot be deleted, and takes no lock for
//! which an append waits, except that of a conversation which it deletes.
//!
//! - `rules`: the limits of one tenant.
//! - `walk`: how far a walk through the conversations of a tenant has come.
//! - `idle`: deletes conversations that were not used for long.
//! - `versions`: erases content that no longer stands.
//! - `trim`: deletes the oldest rows of tables that grow with the use of conversations.
//! - `preview`: counts what these would delete.

mod idle;
mod preview;
mod rules;
mod trim;
mod versions;
mod walk;

pub use preview::PlannedDeletion;
pub use rules::{KeptDays, MAX_KEPT_DAYS, RetentionLimit, TenantLimits, TrimLimits};
pub use walk::{ConversationPosition, Walk, WalkStep};

use anneal_core::caller::TenantId;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// Tenants of a page.
const TENANTS_PER_PAGE: i64 = 500;

impl Store {
    /// Lists the next tenants after a tenant, in the order of their ids, with their names. Empty:
    /// there is none after it.
    pub async fn list_tenants_after(
        &self,
        after: TenantId,
    ) -> Result<Vec<(TenantId, String)>, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let rows = sqlx::query!(
            "select tenant_id, name from tenant where tenant_id > $1 order by tenant_id limit $2",
            after.0,
            TENANTS_PER_PAGE,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let tenants = rows
            .into_iter()
            .map(|row| (TenantId(row.tenant_id), row.name));
        Ok(tenants.collect())
    }
}
