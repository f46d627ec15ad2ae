//! Migrations: forward only, in order, safe to start twice at once. sqlx keeps the ledger; the lock is ours, because
//! sqlx's own waits inside PostgreSQL and so deadlocks with an index that is built concurrently.

use std::time::{Duration, Instant};

use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    migrate::{Migrate as _, Migrator},
};
use tracing::{info, warn};

use crate::{error::StoreError, pool};

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

/// Why migrating failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationsError {
    /// The database cannot be reached or asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A migration failed; it left nothing behind.
    #[error("a migration failed and was rolled back")]
    Failed(#[from] sqlx::migrate::MigrateError),
    /// Another migrator, or a lock on a table, was in the way for too long.
    #[error("gave up after {0:?}: another migrator or a long transaction is in the way")]
    TimedOut(Duration),
}

impl From<sqlx::Error> for MigrationsError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The way to a database's schema. Uses a connection of its own: no statement timeout, no pool.
pub struct Migrations {
    db: PgConnection,
}

impl Migrations {
    /// Connects to the database of `url`.
    pub async fn connect(url: &str) -> Result<Self, MigrationsError> {
        let settings =
            pool::StoreSettings { url: url.into(), statement_timeout_ms: 0, ..pool::StoreSettings::default() };
        let options = pool::connect_options(&settings)?;
        Ok(Self { db: PgConnection::connect_with(&options).await? })
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

    /// Runs what is pending and returns it. Two at once: one works, the other waits and finds nothing left.
    pub async fn run(&mut self, patience: Duration) -> Result<Vec<Migration>, MigrationsError> {
        let started = Instant::now();
        while !self.try_lock().await? {
            if started.elapsed() > patience {
                return Err(MigrationsError::TimedOut(patience));
            }
            tokio::time::sleep(PAUSE).await;
        }
        let outcome = self.run_locked(started, patience).await;
        sqlx::query("select pg_advisory_unlock($1)").bind(LOCK).execute(&mut self.db).await?;
        outcome
    }

    async fn run_locked(&mut self, started: Instant, patience: Duration) -> Result<Vec<Migration>, MigrationsError> {
        let pending = self.pending().await?;
        self.db.execute(AssertSqlSafe(LOCK_TIMEOUT)).await?;
        let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
        migrator.set_locking(false);
        // An older binary may meet a newer schema: what it does not know, it leaves alone.
        migrator.set_ignore_missing(true);
        loop {
            match migrator.run_direct(None, &mut self.db, false).await {
                Ok(()) => break,
                Err(error) if lock_timed_out(&error) && started.elapsed() < patience => {
                    warn!("a table is locked by another session, trying again: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        for migration in &pending {
            info!(migration.version, "applied migration {} ({})", migration.version, migration.name);
        }
        Ok(pending)
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

fn lock_timed_out(error: &sqlx::migrate::MigrateError) -> bool {
    let (sqlx::migrate::MigrateError::Execute(source) | sqlx::migrate::MigrateError::ExecuteMigration(source, _)) =
        error
    else {
        return false;
    };
    source.as_database_error().and_then(|error| error.code().map(|code| code == "55P03")).unwrap_or(false)
}
