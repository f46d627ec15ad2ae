//! Migrations: forward only, in order, safe to start twice at once. sqlx records which ones were
//! applied. Its own lock is not used: it waits inside PostgreSQL, and so deadlocks with an index
//! that is built concurrently.

use std::time::{Duration, Instant};

use sqlx::{
    AssertSqlSafe, Executor as _,
    migrate::{Migrate as _, Migrator},
};
use tracing::{info, warn};

use crate::{
    connection::{BoundedConnection, Pooling, StoreSettings, connect_as_login},
    error::MigrationsError,
    failpoint,
    legacy::{self, LegacyCounts, LegacyProgress},
};

static MIGRATOR: Migrator = sqlx::migrate!("../migrations");
/// Key of the advisory lock of migrators: "anneal" in ASCII.
const LOCK: i64 = 0x61_6e_6e_65_61_6c;
/// Limits how long one statement waits for locks of other sessions. After that the migration is
/// tried again.
const SET_LOCK_TIMEOUT: &str = "set lock_timeout = '1s'";
/// Pause before the next try to get the advisory lock, or to migrate.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// One migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Number of the migration.
    pub version: i64,
    /// Name of the migration.
    pub name: String,
    /// The statements that it runs.
    pub sql: String,
}

/// The migrations and the moved rows of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationOutcome {
    /// The migrations that ran, in order.
    pub migrations: Vec<Migration>,
    /// How many rows of an older system's tables were moved or left out; None if there were no such
    /// tables.
    pub legacy: Option<LegacyCounts>,
}

/// A connection for migrations, without statement timeout and outside the pools.
pub struct Migrations {
    db: BoundedConnection,
    /// Called with the progress while rows of older tables are moved.
    on_progress: Box<dyn Fn(LegacyProgress) + Send + Sync>,
}

impl Migrations {
    /// Connects as the login of the URL, which must own the tables if migrations are to be run. The
    /// session holds the advisory lock across transactions, so there must be no transaction pooler
    /// between this process and the database.
    pub async fn connect(settings: &StoreSettings) -> Result<Self, MigrationsError> {
        let settings = StoreSettings {
            pooling: Pooling::Session,
            ..settings.clone()
        };
        Ok(Self {
            db: BoundedConnection::new(connect_as_login(&settings).await?),
            on_progress: Box::new(|_| ()),
        })
    }

    /// Connects with the login and the pooler of servers and workers, but does not switch to the
    /// role that their sessions have. For listing pending migrations only.
    pub async fn connect_as_process(settings: &StoreSettings) -> Result<Self, MigrationsError> {
        let mut db = BoundedConnection::new(connect_as_login(settings).await?);
        if settings.pooling == Pooling::Transaction {
            // Behind a transaction pooler a session is ours for one transaction, and may contain
            // prepared statements of other clients.
            db.execute("begin; deallocate all").await?;
        }
        Ok(Self {
            db,
            on_progress: Box::new(|_| ()),
        })
    }

    /// Sets the function that is called with the progress while rows of older tables are moved.
    #[must_use]
    pub fn on_progress(self, report: impl Fn(LegacyProgress) + Send + Sync + 'static) -> Self {
        Self {
            on_progress: Box::new(report),
            ..self
        }
    }

    /// Every migration of this build, in order.
    pub fn all() -> Vec<Migration> {
        let all = MIGRATOR.iter().map(|migration| Migration {
            version: migration.version,
            name: migration.description.to_string(),
            sql: migration.sql.as_str().to_owned(),
        });
        all.collect()
    }

    /// The version of the newest migration of this program.
    pub fn newest_version() -> i64 {
        let versions = MIGRATOR.iter().map(|migration| migration.version);
        versions.max().unwrap_or_default()
    }

    /// Lists the migrations that the database lacks, in order.
    pub async fn list_pending(&mut self) -> Result<Vec<Migration>, MigrationsError> {
        let applied = self.list_applied_versions().await?;
        Ok(Self::all()
            .into_iter()
            .filter(|migration| !applied.contains(&migration.version))
            .collect())
    }

    /// Whether there are tables of an older system, whose rows the next run moves.
    pub async fn has_legacy_tables(&mut self) -> Result<bool, MigrationsError> {
        Ok(self.find_legacy().await?.is_some())
    }

    /// Counts what the next run would do with the rows of older tables, if there are any. Changes
    /// nothing.
    pub async fn survey_legacy(&mut self) -> Result<Option<LegacyCounts>, MigrationsError> {
        let Some(shape) = self.find_legacy().await? else {
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        let counts = legacy::survey(&mut tx, shape).await?;
        tx.rollback().await?;
        Ok(Some(counts))
    }

    /// Runs the pending migrations and returns them. If there are tables of an older system, moves
    /// their rows in the same transaction. Of two concurrent runs, one works; the other waits and
    /// finds nothing left to do. Gives up after `max_wait`.
    pub async fn run(&mut self, max_wait: Duration) -> Result<MigrationOutcome, MigrationsError> {
        let started = Instant::now();
        while !self.try_lock().await? {
            if started.elapsed() > max_wait {
                return Err(MigrationsError::TimedOut(max_wait));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let outcome = self.run_under_lock(started, max_wait).await;
        // The lock ends with this session at the latest. An error of its release must not hide the
        // outcome of the run.
        if let Err(error) = sqlx::query("select pg_advisory_unlock($1)")
            .bind(LOCK)
            .execute(&mut self.db)
            .await
        {
            warn!("could not release the lock of migrators, it ends with the connection: {error}");
        }
        outcome
    }

    async fn run_under_lock(
        &mut self,
        started: Instant,
        max_wait: Duration,
    ) -> Result<MigrationOutcome, MigrationsError> {
        failpoint!("migrate.locked");
        let migrations = self.list_pending().await?;
        self.db.execute(AssertSqlSafe(SET_LOCK_TIMEOUT)).await?;
        let legacy = loop {
            match self.apply_pending().await {
                Ok(legacy) => break legacy,
                Err(error) if error.is_conflict() && started.elapsed() < max_wait => {
                    warn!("a table is locked by another session, trying again: {error}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        for migration in &migrations {
            info!(
                migration.version,
                "applied migration {} ({})", migration.version, migration.name
            );
        }
        Ok(MigrationOutcome { migrations, legacy })
    }

    /// Runs each migration in a transaction of its own. If there are tables of an older system,
    /// runs all migrations and the move of the rows in one transaction, in which sqlx's
    /// transactions are savepoints.
    async fn apply_pending(&mut self) -> Result<Option<LegacyCounts>, MigrationsError> {
        let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
        migrator.set_locking(false);
        // An older binary may meet a newer schema: it leaves unknown migrations alone.
        migrator.set_ignore_missing(true);
        let Some(shape) = self.find_legacy().await? else {
            migrator
                .run_direct(None, self.db.unbounded(), false)
                .await?;
            failpoint!("migrate.applied");
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        failpoint!("migrate.legacy.begun");
        let counts = legacy::put_aside(&mut tx, shape).await?;
        migrator.run_direct(None, tx.unbounded(), false).await?;
        legacy::move_rows(&mut tx, &counts, &self.on_progress).await?;
        failpoint!("migrate.legacy.moved");
        tx.commit().await?;
        failpoint!("migrate.legacy.committed");
        Ok(Some(counts))
    }

    /// Finds the tables of an older system. They share names with our tables, so after the first
    /// migration there are none.
    async fn find_legacy(&mut self) -> Result<Option<legacy::Shape>, MigrationsError> {
        let applied = self.list_applied_versions().await?;
        let first = MIGRATOR.iter().map(|migration| migration.version).min();
        if first.is_some_and(|first| applied.contains(&first)) {
            return Ok(None);
        }
        legacy::find(&mut self.db).await
    }

    async fn try_lock(&mut self) -> Result<bool, MigrationsError> {
        Ok(sqlx::query_scalar("select pg_try_advisory_lock($1)")
            .bind(LOCK)
            .fetch_one(&mut self.db)
            .await?)
    }

    async fn list_applied_versions(&mut self) -> Result<Vec<i64>, MigrationsError> {
        let migrations_table: Option<String> =
            sqlx::query_scalar("select to_regclass('_sqlx_migrations')::text")
                .fetch_one(&mut self.db)
                .await?;
        if migrations_table.is_none() {
            return Ok(Vec::new());
        }
        let table = "_sqlx_migrations";
        let applied = self.db.unbounded().list_applied_migrations(table).await?;
        Ok(applied
            .into_iter()
            .map(|migration| migration.version)
            .collect())
    }
}
