//! The reads of `anneal doctor`: settings of the database and of this store's sessions, statistics of
//! tables, the workers that hold jobs, and whether the disk takes data. `cli/src/doctor/` judges
//! them.

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// The settings in force in this store's sessions, and the rights of their roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// The version as a number: 150008 is 15.8.
    pub version: i32,
    /// The version as PostgreSQL writes it.
    pub version_text: String,
    /// The login of the sessions.
    pub login: String,
    /// The login or the role of the sessions, if it is a superuser or bypasses row-level security.
    pub unrestricted_role: Option<String>,
    /// Most connections of the whole cluster.
    pub max_connections: i32,
    /// The part of `max_connections` that is reserved for superusers and other privileged logins.
    pub reserved_connections: i32,
    /// The size of PostgreSQL's own cache.
    pub shared_buffers_bytes: i64,
    /// Whether autovacuum is on.
    pub autovacuum: bool,
    /// Whether PostgreSQL counts changed rows. Without the counts autovacuum does nothing.
    pub track_counts: bool,
    /// How detailed the statistics of `analyze` are.
    pub statistics_target: i32,
    /// The level of the write-ahead log: `minimal`, `replica` or `logical`.
    pub wal_level: String,
    /// The standbys for which commits wait; empty: none.
    pub synchronous_standby_names: String,
    /// Whether statements may be compiled. The store's sessions turn it off.
    pub jit: bool,
    /// When an idle transaction is ended; 0: never. The store's sessions set it.
    pub idle_in_transaction_ms: i64,
    /// When a statement is ended; 0: never. The store's sessions set it.
    pub statement_timeout_ms: i64,
    /// When an idle session is ended; 0: never.
    pub idle_session_ms: i64,
}

/// PostgreSQL's statistics of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStatistics {
    /// The table's name.
    pub name: String,
    /// Estimated number of rows.
    pub live_rows: i64,
    /// Estimated number of dead versions of rows, which vacuum removes.
    pub dead_rows: i64,
    /// Whether the table was ever analyzed.
    pub is_analyzed: bool,
}

/// A worker that holds leases of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFigures {
    /// The worker's name: host and process id.
    pub name: String,
    /// The number of its jobs.
    pub jobs: i64,
}

impl Store {
    /// Reads the settings that are in force in this store's sessions.
    pub async fn read_database_settings(&self) -> Result<DatabaseSettings, StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let settings = sqlx::query_file_as!(DatabaseSettings, "sql/database_settings.sql")
            .fetch_one(&mut *db)
            .await?;
        db.release().await?;
        Ok(settings)
    }

    /// Reads the statistics of the schema's tables with at least `min_rows` rows, dead ones
    /// included.
    pub async fn read_table_statistics(
        &self,
        min_rows: i64,
    ) -> Result<Vec<TableStatistics>, StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let tables = sqlx::query_file_as!(TableStatistics, "sql/table_statistics.sql", min_rows)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        Ok(tables)
    }

    /// Has PostgreSQL write 1.4 MB of temporary data, which it deletes at once. Fails if the disk
    /// of the database is full. Other reads succeed then, and PostgreSQL tells its clients the free
    /// space in no other way.
    pub async fn probe_disk(&self) -> Result<(), StoreError> {
        let mut db = self.reads.checkout(Scope::Nobody).await?;
        let mut tx = db.begin().await?;
        // The rows of a function that do not fit into this memory go to a temporary file.
        sqlx::query!("select set_config('work_mem', '64kB', true) as work_mem")
            .fetch_one(&mut *tx)
            .await?;
        sqlx::query!("select count(*) as row_count from generate_series(1, 100000)")
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        db.release().await?;
        Ok(())
    }

    /// Lists the workers that hold leases of jobs now.
    pub async fn list_working_workers(&self) -> Result<Vec<WorkerFigures>, StoreError> {
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let workers = sqlx::query_file_as!(WorkerFigures, "sql/working_workers.sql")
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        Ok(workers)
    }
}
