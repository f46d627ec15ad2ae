//! How many rows of conversations each table has.

use std::collections::BTreeMap;

use anneal_core::caller::{Caller, ConversationId};
use uuid::Uuid;

use crate::{connection::BoundedConnection, error::StoreError};

/// Numbers of rows, by table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RowCounts(pub(crate) BTreeMap<String, i64>);

impl RowCounts {
    /// The counts in the column `rows_erased`.
    pub(super) fn parse(column: &str) -> Result<Self, StoreError> {
        serde_json::from_str(column)
            .map(Self)
            .map_err(|_| StoreError::Unreadable("erased rows"))
    }

    /// Adds rows of a table, if there are any.
    pub(crate) fn add(&mut self, table: &str, rows: i64) {
        if rows > 0 {
            *self.0.entry(table.to_owned()).or_default() += rows;
        }
    }

    /// Adds the rows of all tables.
    pub(crate) fn add_all(&mut self, more: &Self) {
        for (table, rows) in &more.0 {
            self.add(table, *rows);
        }
    }
}

/// Counts the rows of these conversations, which the caller has locked for deletion, except their
/// messages and versions of messages.
pub(super) async fn count_rows(
    db: &mut BoundedConnection,
    caller: Caller,
    ids: &[ConversationId],
) -> Result<RowCounts, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_file!("sql/count_rows.sql", caller.tenant().0, &ids)
        .fetch_all(db)
        .await?;
    let mut counts = RowCounts::default();
    for row in rows {
        counts.add(&row.table_name, row.rows);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_steps_add_up_by_table() {
        let mut counts = RowCounts::parse(r#"{"ai_message": 3}"#).expect("is valid");
        let mut step = RowCounts::default();
        step.add("ai_message", 4);
        step.add("ai_separator", 1);
        step.add("ai_job", 0);
        counts.add_all(&step);
        assert_eq!(counts.0.get("ai_message"), Some(&7));
        assert_eq!(counts.0.get("ai_separator"), Some(&1));
        assert_eq!(counts.0.len(), 2, "tables without rows are left out");
        assert!(RowCounts::parse("[]").is_err());
    }
}
