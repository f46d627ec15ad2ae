//! Finds rows that a deletion has left behind: rows of a conversation that does not exist.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::MessageId,
};

use super::report::{VerifyReport, Violation};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::{Entity, StoreError},
};

/// Number of the promise that a deletion reaches everything derived from the conversation.
const DELETION: i32 = 15;

/// Bytes of each table that one search reads: eight of PostgreSQL's pages, about 100 pages in all
/// tables together.
const BYTES_PER_TABLE: f64 = 8.0 * 8192.0;

/// Rows of a conversation that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedRows {
    /// The tenant that the rows name.
    pub tenant: TenantId,
    /// The conversation that the rows name.
    pub conversation: ConversationId,
    /// The broken promise; its description names the table.
    pub violation: Violation,
}

impl Store {
    /// Looks for rows of these tenants' conversations that do not exist, in random pages of each
    /// table. So each search reads the same amount, and searches everything only in small tables.
    pub async fn find_orphaned_rows(
        &self,
        tenants: &[TenantId],
    ) -> Result<Vec<OrphanedRows>, StoreError> {
        let mut db = self
            .jobs
            .checkout(Scope::of(tenants.iter().copied()))
            .await?;
        let ids: Vec<_> = tenants.iter().map(|tenant| tenant.0).collect();
        let rows = sqlx::query_file!(
            "sql/find_orphaned_rows.sql",
            &ids,
            // The statement divides by the size of a table, which gives a percentage.
            100.0 * BYTES_PER_TABLE,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let orphaned = rows.into_iter().map(|row| OrphanedRows {
            tenant: TenantId(row.tenant_id),
            conversation: ConversationId(row.conversation_id),
            violation: violation_in(&row.table_name),
        });
        Ok(orphaned.collect())
    }
}

/// Reports the tables that have rows of a conversation that does not exist. Fails if none has.
pub(super) async fn check_deletion(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<VerifyReport, StoreError> {
    let tables = sqlx::query_file_scalar!("sql/tables_with_rows.sql", caller.tenant().0, id.0)
        .fetch_all(db)
        .await?;
    if tables.is_empty() {
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    Ok(VerifyReport {
        violations: tables.iter().map(|table| violation_in(table)).collect(),
        ..VerifyReport::default()
    })
}

fn violation_in(table: &str) -> Violation {
    Violation {
        promise: DELETION,
        description: format!("the conversation was deleted, but {table} has rows of it"),
        message: MessageId(0),
    }
}
