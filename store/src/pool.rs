//! Connections: pools of deadpool over sqlx's PostgreSQL connection. Waiting is bounded; a connection whose statement was
//! given up is closed, never handed on.

use std::{
    ops::{Deref, DerefMut},
    str::FromStr as _,
    sync::Arc,
    time::Duration,
};

use deadpool::managed::{self, Metrics, Object, RecycleResult};
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _,
    postgres::{PgConnectOptions, PgTransactionManager},
};
use sqlx_core::transaction::TransactionManager as _;

use crate::{
    error::StoreError,
    scope::{Scope, Span},
};

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
    /// The role that sessions work in, which row-level security holds for; the login must be a member. Empty: the login's own.
    pub role: String,
    /// What stands between here and the database.
    pub pooling: Pooling,
    /// Whether processes start on a database that may lose in a crash what it has acknowledged.
    pub allow_data_loss: bool,
}

/// How long a connection stays with the same session of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    #[default]
    /// As long as it is open: PostgreSQL itself, or a pooler in session mode.
    Session,
    /// For one transaction: PgBouncer in transaction mode. Everything then happens within one, and nothing is kept between.
    Transaction,
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
            role: "anneal_app".into(),
            pooling: Pooling::Session,
            allow_data_loss: false,
        }
    }
}

/// What every session sets.
fn session_settings(settings: &StoreSettings) -> Vec<(&'static str, String)> {
    let mut set = vec![
        ("statement_timeout", format!("{}ms", settings.statement_timeout_ms)),
        ("idle_in_transaction_session_timeout", "5s".into()),
        // A call whose time is up closes its connection: its statement ends with it, and not when it comes to answer.
        ("client_connection_check_interval", "1s".into()),
        ("default_transaction_isolation", "read committed".into()),
        // Every statement here is short; those over long tables are planned as if they were not, and compiling takes 35 ms.
        ("jit", "off".into()),
        // Every statement goes by keys: a plan for these very values is no better, and making one takes longer than running
        // it. A plan may be older than the table is large, and must not scan it.
        ("plan_cache_mode", "force_generic_plan".into()),
        ("enable_seqscan", "off".into()),
        // A page walks its index in order and stops at its end. A bitmap scan reads everything behind the page and sorts it:
        // reading a conversation page by page would cost the square of its length.
        ("enable_bitmapscan", "off".into()),
    ];
    #[cfg(feature = "sabotage")]
    if crate::sabotage::is_without_row_security() {
        return set;
    }
    if !settings.role.is_empty() {
        set.push(("role", settings.role.clone()));
    }
    set
}

/// Parses the URL and sets what every session needs.
fn connect_options(settings: &StoreSettings) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(&settings.url)
        .map_err(|error| StoreError::BadUrl(error.into()))?
        .application_name("anneal");
    let options = match settings.pooling {
        Pooling::Session => options.statement_cache_capacity(200).options(session_settings(settings)),
        Pooling::Transaction => options.statement_cache_capacity(0),
    };
    #[cfg(feature = "sabotage")]
    if let set @ [_, ..] = crate::sabotage::session_options() {
        return Ok(options.options(set.iter().copied()));
    }
    Ok(options)
}

/// Idle time after which a connection is asked whether it lives: a ping costs a round trip, a dead one costs a failed call.
const ASK_AFTER_IDLE: Duration = Duration::from_millis(500);

/// How long such a connection has to answer: its other end may be gone without anybody saying so.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A connection as the login itself, in no role: for who makes databases, migrates or makes keys, which is for the owner of the
/// tables, and for who asks what is pending, which is for any login. Its statements take as long as they take.
pub(crate) async fn connect_as_owner(url: &str, pooling: Pooling) -> Result<PgConnection, StoreError> {
    let (url, role) = (url.into(), String::new());
    let settings = StoreSettings { url, role, pooling, statement_timeout_ms: 0, ..StoreSettings::default() };
    Ok(PgConnection::connect_with(&connect_options(&settings)?).await?)
}

/// How connections to a database are opened and used.
#[derive(Clone)]
pub(crate) struct Access {
    options: PgConnectOptions,
    /// Where every use is a transaction: what it begins with.
    preamble: Option<String>,
}

impl Access {
    /// As the settings say.
    pub(crate) fn new(settings: &StoreSettings) -> Result<Self, StoreError> {
        // Statements that somebody else has prepared in this session have the names that ours will have.
        let preamble =
            session_settings(settings).into_iter().fold(String::from("deallocate all"), |all, (name, value)| {
                format!("{all}; set local {name} = '{}'", value.replace('\'', "''"))
            });
        let preamble = (settings.pooling == Pooling::Transaction).then_some(preamble);
        Ok(Self { options: connect_options(settings)?, preamble })
    }
}

/// Whether what is asked here is part of a transaction, which a refused statement would end.
pub(crate) fn is_in_transaction(db: &PgConnection) -> bool {
    PgTransactionManager::get_transaction_depth(db) > 0
}

/// A connection, and whose rows its session sees.
pub(crate) struct Session {
    connection: PgConnection,
    scope: Scope,
}

/// Opens connections for deadpool.
pub(crate) struct Connector {
    access: Access,
}

impl managed::Manager for Connector {
    type Type = Session;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Session, sqlx::Error> {
        let connection = PgConnection::connect_with(&self.access.options).await?;
        Ok(Session { connection, scope: Scope::Nobody })
    }

    /// Only connections whose last statement came to its end return to the pool; one that has lain idle may have lost its
    /// server since, and is asked first.
    async fn recycle(&self, session: &mut Session, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() > ASK_AFTER_IDLE {
            session.connection.ping().await?;
        }
        Ok(())
    }
}

/// A bounded set of connections.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Connector>,
    preamble: Option<Arc<str>>,
}

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
pub(crate) fn pool(access: Access, most: u32, wait: Duration) -> Pool {
    let preamble = access.preamble.as_deref().map(Arc::from);
    let built = managed::Pool::builder(Connector { access })
        .max_size(most.max(1) as usize)
        .wait_timeout(Some(wait))
        .create_timeout(Some(wait.max(Duration::from_secs(5))))
        .recycle_timeout(Some(ANSWER_WITHIN))
        .runtime(deadpool::Runtime::Tokio1)
        .build();
    Pool { connections: built.expect("a runtime is given, which is all that timeouts need"), preamble }
}

impl Pool {
    /// A connection that sees these rows, within the pool's waiting time.
    pub(crate) async fn checkout(&self, scope: impl Into<Scope>) -> Result<Link, StoreError> {
        self.reserve().await?.seeing(scope.into()).await
    }

    /// The same, and everything that is read until it is released is as it is now. Nothing can be changed.
    pub(crate) async fn snapshot(&self, scope: impl Into<Scope>) -> Result<Link, StoreError> {
        let Reserved { object, preamble } = self.reserve().await?;
        let scope = scope.into();
        let mut link = Link { object: Some(object), is_transaction: true };
        let preamble = preamble.map(|preamble| format!("; {preamble}")).unwrap_or_default();
        let names = scope.statement(Span::Transaction);
        link.begin_with(format!("begin isolation level repeatable read read only{preamble}; {names}")).await?;
        Ok(link)
    }

    /// A connection for who does not know yet whose rows it is for.
    pub(crate) async fn reserve(&self) -> Result<Reserved, StoreError> {
        let object = self.connections.get().await.map_err(|error| match error {
            managed::PoolError::Backend(error) => StoreError::Unavailable(error.into()),
            managed::PoolError::Timeout(managed::TimeoutType::Create) => {
                StoreError::Unavailable(sqlx::Error::PoolTimedOut.into())
            }
            _ => StoreError::Busy,
        })?;
        Ok(Reserved { object, preamble: self.preamble.clone() })
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.connections.status();
        PoolFigures { most: status.max_size, open: status.size, idle: status.available, waiting: status.waiting }
    }
}

/// A connection that is ours, and asks for nothing yet. Dropped, it returns to its pool.
pub(crate) struct Reserved {
    object: Object<Connector>,
    preamble: Option<Arc<str>>,
}

impl Reserved {
    /// The same connection, which from now on sees these rows and no others.
    pub(crate) async fn seeing(self, scope: Scope) -> Result<Link, StoreError> {
        let mut link = Link { object: Some(self.object), is_transaction: self.preamble.is_some() };
        if let Some(preamble) = self.preamble {
            let names = scope.statement(Span::Transaction);
            link.begin_with(format!("begin isolation level read committed; {preamble}; {names}")).await?;
            return Ok(link);
        }
        let session = link.session();
        if session.scope != scope {
            session.connection.execute(AssertSqlSafe(scope.statement(Span::Session))).await?;
            session.scope = scope;
        }
        Ok(link)
    }
}

/// A connection in use. Dropped without [`Link::release`] (an error, a caller that went away) it is closed: the next
/// caller must not inherit half a statement.
pub(crate) struct Link {
    object: Option<Object<Connector>>,
    /// Whether its use is one transaction, which ends when it is released.
    is_transaction: bool,
}

const HELD: &str = "the connection is taken out only when the link is dropped";

impl Link {
    /// Gives the connection back to its pool. Until this has returned, nothing is certain to be stored.
    pub(crate) async fn release(mut self) -> Result<(), StoreError> {
        if self.is_transaction {
            let connection = &mut self.session().connection;
            // A transaction in which something has failed would answer COMMIT with ROLLBACK, and no error.
            connection.execute("select 1").await?;
            PgTransactionManager::commit(connection).await?;
        }
        drop(self.object.take());
        Ok(())
    }

    /// Gives the connection back after an outcome that leaves it sound: success, or a refusal by the data.
    pub(crate) async fn settle<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match outcome {
            Ok(done) => self.release().await.map(|()| done),
            Err(refusal) if refusal.is_refusal() => self.undo().await.and(Err(refusal)),
            Err(error) => Err(error),
        }
    }

    /// Gives the connection back, and takes back what its transaction has done. A transaction that is dropped ends with the
    /// next statement only: until then its locks would stay.
    pub(crate) async fn undo(mut self) -> Result<(), StoreError> {
        let is_transaction = self.is_transaction;
        let connection = &mut self.session().connection;
        if is_transaction {
            PgTransactionManager::rollback(connection).await?;
        } else {
            connection.ping().await?;
        }
        drop(self.object.take());
        Ok(())
    }

    async fn begin_with(&mut self, begin: String) -> Result<(), StoreError> {
        let connection = &mut self.session().connection;
        Ok(PgTransactionManager::begin(connection, Some(AssertSqlSafe(begin).into_sql_str())).await?)
    }

    fn session(&mut self) -> &mut Session {
        self.object.as_mut().expect(HELD)
    }
}

impl Deref for Link {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.object.as_ref().expect(HELD).connection
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.session().connection
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
