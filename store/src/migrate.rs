//! Migrations: forward only, in order, safe to start twice at once. sqlx keeps the ledger; the lock is ours, because
//! sqlx's own waits inside PostgreSQL and so deadlocks with an index that is built concurrently.

use std::time::{Duration, Instant};

use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    migrate::{Migrate as _, MigrateError, Migrator},
};
use tracing::{info, warn};

use crate::{
    error::StoreError,
    failpoint,
    legacy::{self, LegacyCounts, Moved},
    pool::{Pooling, StoreSettings, connect_as_owner},
};

static MIGRATOR: Migrator = sqlx::migrate!("../migrations");
/// The advisory lock of migrators: "anneal" in ASCII.
const LOCK: i64 = 0x61_6e_6e_65_61_6c;
/// How long one statement waits for other sessions' locks before the migration is tried again.
const LOCK_TIMEOUT: &str = "set lock_timeout = '1s'";
const PAUSE: Duration = Duration::from_millis(250);

/// One step of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub name: String,
    /// What it runs.
    pub sql: String,
}

/// What migrating has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The migrations that ran, in order.
    pub migrations: Vec<Migration>,
    /// What became of the older tables' rows, where there were such tables.
    pub legacy: Option<LegacyCounts>,
}

/// Why migrating failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationsError {
    /// The database cannot be reached or asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A migration failed; it left nothing behind.
    #[error("a migration failed and was rolled back")]
    Failed(#[from] MigrateError),
    /// Another migrator, or a lock on a table, was in the way for too long.
    #[error("gave up after {0:?}: another migrator or a long transaction is in the way")]
    TimedOut(Duration),
    /// A table has the name of one of ours, and is neither ours nor of the older shape.
    #[error("{0}: these are neither anneal's tables nor the older ones; rename them, or use another database")]
    Foreign(String),
    /// The older tables hold what cannot be moved without loss, or cannot be dropped.
    #[error("nothing was changed, because the older tables cannot be moved: {0}")]
    Unmovable(String),
    /// Not everything arrived that was counted: a bug.
    #[error("nothing was changed: {counted} {what} were counted, but {moved} moved")]
    Miscounted {
        /// Messages, conversations or separators.
        what: &'static str,
        /// How many were counted.
        counted: i64,
        /// How many arrived.
        moved: i64,
    },
}

impl MigrationsError {
    /// Whether another session's lock was in the way, so that a second try can succeed.
    fn is_in_the_way(&self) -> bool {
        let source = match self {
            Self::Store(StoreError::Conflict(_)) => return true,
            Self::Failed(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => source,
            _ => return false,
        };
        source.as_database_error().and_then(|error| error.code().map(|code| code == "55P03")).unwrap_or(false)
    }
}

impl From<sqlx::Error> for MigrationsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The way to a database's schema. Uses a connection of its own: no statement timeout, no pool.
pub struct Migrations {
    db: PgConnection,
    watch: Box<dyn Fn(Moved) + Send + Sync>,
}

impl Migrations {
    /// Connects to the database of these settings as its owner does: past any pooler.
    pub async fn connect(settings: &StoreSettings) -> Result<Self, MigrationsError> {
        let settings = StoreSettings { pooling: Pooling::Session, ..settings.clone() };
        Ok(Self { db: connect_as_owner(&settings).await?, watch: Box::new(|_| ()) })
    }

    /// Connects in the way in which a process with these settings does, to see what is pending.
    pub async fn reach(settings: &StoreSettings) -> Result<Self, MigrationsError> {
        let mut db = connect_as_owner(settings).await?;
        if settings.pooling == Pooling::Transaction {
            // A session is ours for one transaction, and may hold what others have prepared.
            db.execute("begin; deallocate all").await?;
        }
        Ok(Self { db, watch: Box::new(|_| ()) })
    }

    /// Tells `watch` how far the rows of older tables have come, as they are moved.
    #[must_use]
    pub fn watched(self, watch: impl Fn(Moved) + Send + Sync + 'static) -> Self {
        Self { watch: Box::new(watch), ..self }
    }

    /// Every migration that this build knows, in order.
    pub fn all() -> Vec<Migration> {
        let all = MIGRATOR.iter().map(|migration| Migration {
            version: migration.version,
            name: migration.description.to_string(),
            sql: migration.sql.as_str().to_owned(),
        });
        all.collect()
    }

    /// The migrations that the database lacks, in order.
    pub async fn pending(&mut self) -> Result<Vec<Migration>, MigrationsError> {
        let applied = self.applied().await?;
        Ok(Self::all().into_iter().filter(|migration| !applied.contains(&migration.version)).collect())
    }

    /// Whether the older tables are there, so that the next run moves their rows.
    pub async fn finds_legacy(&mut self) -> Result<bool, MigrationsError> {
        Ok(self.find_legacy().await?.is_some())
    }

    /// What the next run would do with the rows of older tables, where there are such tables. Changes nothing.
    pub async fn survey_legacy(&mut self) -> Result<Option<LegacyCounts>, MigrationsError> {
        let Some(shape) = self.find_legacy().await? else { return Ok(None) };
        let mut tx = self.db.begin().await?;
        let counts = legacy::survey(&mut tx, shape).await?;
        tx.rollback().await?;
        Ok(Some(counts))
    }

    /// Runs what is pending and returns it; moves the rows of older tables in the same transaction. Two at once: one works, the other waits and finds nothing left.
    pub async fn run(&mut self, patience: Duration) -> Result<Applied, MigrationsError> {
        let started = Instant::now();
        while !self.try_lock().await? {
            if started.elapsed() > patience {
                return Err(MigrationsError::TimedOut(patience));
            }
            tokio::time::sleep(PAUSE).await;
        }
        let outcome = self.run_locked(started, patience).await;
        // The lock ends with this session at the latest; what was done, or why not, is what the caller has to know.
        if let Err(error) = sqlx::query("select pg_advisory_unlock($1)").bind(LOCK).execute(&mut self.db).await {
            warn!("the lock of migrators was not released, and ends with the connection: {error}");
        }
        outcome
    }

    async fn run_locked(&mut self, started: Instant, patience: Duration) -> Result<Applied, MigrationsError> {
        failpoint!("migrate.locked");
        let migrations = self.pending().await?;
        self.db.execute(AssertSqlSafe(LOCK_TIMEOUT)).await?;
        let legacy = loop {
            match self.attempt().await {
                Ok(legacy) => break legacy,
                Err(error) if error.is_in_the_way() && started.elapsed() < patience => {
                    warn!("a table is locked by another session, trying again: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        for migration in &migrations {
            info!(migration.version, "applied migration {} ({})", migration.version, migration.name);
        }
        Ok(Applied { migrations, legacy })
    }

    /// Each migration in a transaction of its own; with older tables all of them and the rows in one, where sqlx makes its own
    /// transactions savepoints.
    async fn attempt(&mut self) -> Result<Option<LegacyCounts>, MigrationsError> {
        let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
        migrator.set_locking(false);
        // An older binary may meet a newer schema: what it does not know, it leaves alone.
        migrator.set_ignore_missing(true);
        let Some(shape) = self.find_legacy().await? else {
            migrator.run_direct(None, &mut self.db, false).await?;
            failpoint!("migrate.applied");
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        failpoint!("migrate.legacy.begun");
        let counts = legacy::put_aside(&mut tx, shape).await?;
        migrator.run_direct(None, &mut *tx, false).await?;
        legacy::move_rows(&mut tx, &counts, &self.watch).await?;
        failpoint!("migrate.legacy.moved");
        tx.commit().await?;
        failpoint!("migrate.legacy.committed");
        Ok(Some(counts))
    }

    /// Where the first migration has run, tables of these names are its own.
    async fn find_legacy(&mut self) -> Result<Option<legacy::Shape>, MigrationsError> {
        let applied = self.applied().await?;
        let first = MIGRATOR.iter().map(|migration| migration.version).min();
        if first.is_some_and(|first| applied.contains(&first)) {
            return Ok(None);
        }
        legacy::find(&mut self.db).await
    }

    async fn try_lock(&mut self) -> Result<bool, MigrationsError> {
        Ok(sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut self.db).await?)
    }

    async fn applied(&mut self) -> Result<Vec<i64>, MigrationsError> {
        let ledger: Option<String> =
            sqlx::query_scalar("select to_regclass('_sqlx_migrations')::text").fetch_one(&mut self.db).await?;
        if ledger.is_none() {
            return Ok(Vec::new());
        }
        let table = "_sqlx_migrations";
        let applied = self.db.list_applied_migrations(table).await?;
        Ok(applied.into_iter().map(|migration| migration.version).collect())
    }
}
