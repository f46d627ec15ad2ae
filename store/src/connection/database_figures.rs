//! The figures of PostgreSQL itself, for metrics: sizes, standbys, replication lag.

use super::row_security::Scope;
use crate::{Store, error::StoreError};

/// The figures of the database. None: the session's role may not read the figure.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseFigures {
    /// Bytes of the whole database.
    pub size_bytes: Option<i64>,
    /// Standbys that stream from this server.
    pub standbys: Option<i64>,
    /// Seconds that the standby that is furthest behind lags in replaying; also None if there is no
    /// standby. If this server is a standby, seconds since the newest commit that it has replayed.
    pub replication_lag_seconds: Option<f64>,
    /// Our tables.
    pub tables: Vec<TableFigures>,
}

/// The figures of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableFigures {
    /// Name of the table.
    pub name: String,
    /// Bytes of the table and its indexes. None: the table is being dropped.
    pub size_bytes: Option<i64>,
    /// Its rows, as PostgreSQL estimated them at its last vacuum or analyze. None: it has never
    /// counted them.
    pub rows: Option<f64>,
}

impl Store {
    /// Reads the figures of the database. Standbys and their lag need the role `pg_read_all_stats`.
    pub async fn read_database_figures(&self) -> Result<DatabaseFigures, StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let database = sqlx::query_file!("sql/database_figures.sql")
            .fetch_one(&mut *db)
            .await?;
        let tables = sqlx::query_file!("sql/table_figures.sql")
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let tables = tables.into_iter().map(|row| TableFigures {
            name: row.table_name,
            size_bytes: row.size_bytes,
            rows: row.rows,
        });
        Ok(DatabaseFigures {
            size_bytes: database.size_bytes,
            standbys: database.standbys,
            replication_lag_seconds: database.replication_lag_seconds,
            tables: tables.collect(),
        })
    }
}
