//! Connections: pools of deadpool over sqlx's PostgreSQL connection. Waiting is bounded; a connection whose statement was
//! given up is closed, never handed on.

use std::{
    ops::{Deref, DerefMut},
    str::FromStr as _,
    time::Duration,
};

use deadpool::managed::{self, Metrics, Object, RecycleResult};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use crate::error::StoreError;

/// Where the database is, and how many connections may be open to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// Connections for appends and other changes.
    pub write_connections: u32,
    /// Connections for contexts, lists and single messages.
    pub read_connections: u32,
    /// Connections for the worker's jobs.
    pub job_connections: u32,
    /// Milliseconds that a call waits for a free connection before it is refused.
    pub pool_wait_ms: u32,
    /// Milliseconds that one statement may take.
    pub statement_timeout_ms: u32,
    /// Whether processes start on a database that may lose in a crash what it has acknowledged.
    pub allow_data_loss: bool,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            write_connections: 16,
            read_connections: 16,
            job_connections: 8,
            pool_wait_ms: 2_000,
            statement_timeout_ms: 60_000,
            allow_data_loss: false,
        }
    }
}

/// Parses the URL and sets what every session needs.
pub(crate) fn connect_options(settings: &StoreSettings) -> Result<PgConnectOptions, StoreError> {
    let statement = format!("{}ms", settings.statement_timeout_ms);
    let options = PgConnectOptions::from_str(&settings.url)
        .map_err(StoreError::BadUrl)?
        .application_name("anneal")
        .statement_cache_capacity(200)
        .options([
            ("statement_timeout", statement.as_str()),
            ("idle_in_transaction_session_timeout", "5s"),
            ("default_transaction_isolation", "read committed"),
            // Every statement here is short; those over long tables are planned as if they were not, and compiling takes 35 ms.
            ("jit", "off"),
            // Every statement goes by keys: a plan for these very values is no better, and making one takes longer than running
            // it. A plan may be older than the table is large, and must not scan it.
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
        ]);
    #[cfg(feature = "sabotage")]
    let options = options.options(crate::sabotage::session_options().iter().copied());
    Ok(options)
}

/// Idle time after which a connection is asked whether it lives: a ping costs a round trip, a dead one costs a failed call.
const ASK_AFTER_IDLE: Duration = Duration::from_millis(500);

/// How long such a connection has to answer: its other end may be gone without anybody saying so.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Opens connections for deadpool.
pub(crate) struct Connector {
    options: PgConnectOptions,
}

impl managed::Manager for Connector {
    type Type = PgConnection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options).await
    }

    /// Only connections whose last statement came to its end return to the pool; one that has lain idle may have lost its
    /// server since, and is asked first.
    async fn recycle(&self, connection: &mut PgConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() > ASK_AFTER_IDLE {
            connection.ping().await?;
        }
        Ok(())
    }
}

/// A bounded set of connections.
#[derive(Clone)]
pub(crate) struct Pool(managed::Pool<Connector>);

/// How busy a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Connections that may be open.
    pub most: usize,
    /// Connections that are open.
    pub open: usize,
    /// Of these: free.
    pub idle: usize,
    /// Calls that wait for one.
    pub waiting: usize,
}

/// A pool of at most `most` connections; a caller waits up to `wait` for a free one.
pub(crate) fn pool(options: PgConnectOptions, most: u32, wait: Duration) -> Pool {
    let built = managed::Pool::builder(Connector { options })
        .max_size(most.max(1) as usize)
        .wait_timeout(Some(wait))
        .create_timeout(Some(wait.max(Duration::from_secs(5))))
        .recycle_timeout(Some(ANSWER_WITHIN))
        .runtime(deadpool::Runtime::Tokio1)
        .build();
    Pool(built.expect("a runtime is given, which is all that timeouts need"))
}

impl Pool {
    /// A connection, within the pool's waiting time.
    pub(crate) async fn checkout(&self) -> Result<Link, StoreError> {
        let object = self.0.get().await.map_err(|error| match error {
            managed::PoolError::Backend(error) => StoreError::Unavailable(error),
            managed::PoolError::Timeout(managed::TimeoutType::Create) => {
                StoreError::Unavailable(sqlx::Error::PoolTimedOut)
            }
            _ => StoreError::Busy,
        })?;
        Ok(Link { object: Some(object) })
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.0.status();
        PoolFigures { most: status.max_size, open: status.size, idle: status.available, waiting: status.waiting }
    }
}

/// A connection in use. Dropped without [`Link::release`] (an error, a caller that went away) it is closed: the next
/// caller must not inherit half a statement.
pub(crate) struct Link {
    object: Option<Object<Connector>>,
}

const HELD: &str = "the connection is taken out only when the link is dropped";

impl Link {
    /// Gives the connection back to its pool.
    pub(crate) fn release(mut self) {
        drop(self.object.take());
    }
}

impl Link {
    /// Gives the connection back after an outcome that leaves it sound: success, or a refusal by the data.
    pub(crate) fn settle<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if outcome.as_ref().err().is_none_or(StoreError::is_refusal) {
            self.release();
        }
        outcome
    }
}

impl Deref for Link {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.object.as_ref().expect(HELD)
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.object.as_mut().expect(HELD)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
