//! Connections: pools of deadpool over sqlx's PostgreSQL connection. Waiting is bounded, in the tenant's own line first.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use deadpool::managed::{self, Metrics, Object, RecycleResult, Timeouts};
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgTransactionManager},
};
use sqlx_core::transaction::TransactionManager as _;

use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use crate::{
    address::is_protected,
    error::StoreError,
    link::Link,
    scope::{Scope, Span},
    shares::TenantShares,
};

/// Where the database is, and how many connections may be open to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// Whether a database beyond this machine may be reached without a verified certificate.
    pub insecure: bool,
    /// Connections for appends and other changes.
    pub write_connections: u32,
    /// Connections for contexts, lists and single messages.
    pub read_connections: u32,
    /// Connections for the worker's jobs.
    pub job_connections: u32,
    /// Connections for looking up credentials; the readiness probe has one more of its own.
    pub system_connections: u32,
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
            insecure: false,
            write_connections: 16,
            read_connections: 16,
            job_connections: 8,
            system_connections: 4,
            pool_wait_ms: 2_000,
            statement_timeout_ms: 60_000,
            role: "anneal_app".into(),
            pooling: Pooling::Session,
            allow_data_loss: false,
        }
    }
}

impl StoreSettings {
    /// The default settings for the database of this URL.
    pub fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
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

/// Parses the URL and sets what every session needs. Every connection of anneal's is opened with these options.
fn connect_options(settings: &StoreSettings) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(&settings.url)
        .map_err(|error| StoreError::BadUrl(error.into()))?
        .application_name("anneal");
    if !settings.insecure && !is_protected(&options) {
        return Err(StoreError::Unprotected { host: options.get_host().to_owned() });
    }
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
pub(crate) async fn connect_as_owner(settings: &StoreSettings) -> Result<PgConnection, StoreError> {
    let settings = StoreSettings { role: String::new(), statement_timeout_ms: 0, ..settings.clone() };
    Ok(PgConnection::connect_with(&connect_options(&settings)?).await?)
}

/// A connection that hears notifications. It connects again by itself when it is lost.
pub(crate) async fn connect_to_listen(settings: &StoreSettings) -> Result<PgListener, StoreError> {
    let lasting = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let mut listener = PgListener::connect_with(&lasting.connect_with(connect_options(settings)?).await?).await?;
    // The pool is its own, and nobody else closes it.
    listener.ignore_pool_close_event(true);
    Ok(listener)
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
    pub(crate) connection: PgConnection,
    pub(crate) scope: Scope,
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

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Connector>,
    preamble: Option<Arc<str>>,
    /// How long a call waits for its tenant's share and for a connection, both together.
    wait: Duration,
    /// None: every tenant may have all connections.
    shares: Option<Arc<TenantShares>>,
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
    /// Calls that wait for one, or for their tenant's share.
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
    let connections = built.expect("a runtime is given, which is all that timeouts need");
    Pool { connections, preamble, wait, shares: None }
}

impl Pool {
    /// The same pool, of whose connections one tenant may have so many percent.
    pub(crate) fn shared_by_tenants(self, percent: u32) -> Self {
        let most = self.connections.status().max_size;
        Self { shares: Some(Arc::new(TenantShares::new(most, percent))), ..self }
    }

    /// A connection that sees these rows, within the pool's waiting time. It counts in the tenant's share where the rows are
    /// one tenant's; the queue and what serves several tenants at once have no share, and wait for no tenant's.
    pub(crate) async fn checkout(&self, scope: impl Into<Scope>) -> Result<Link, StoreError> {
        let scope = scope.into();
        self.reserve_for(&scope).await?.seeing(scope).await
    }

    /// The same, and everything that is read until it is released is as it is now. Nothing can be changed.
    pub(crate) async fn snapshot(&self, scope: impl Into<Scope>) -> Result<Link, StoreError> {
        let scope = scope.into();
        let Reserved { object, preamble, share } = self.reserve_for(&scope).await?;
        let mut link = Link::new(object, true, share);
        let preamble = preamble.map(|preamble| format!("; {preamble}")).unwrap_or_default();
        let names = scope.statement(Span::Transaction);
        link.begin_with(format!("begin isolation level repeatable read read only{preamble}; {names}")).await?;
        Ok(link)
    }

    /// A connection for who does not know yet whose rows it is for.
    pub(crate) async fn reserve(&self) -> Result<Reserved, StoreError> {
        self.reserve_for(&Scope::Nobody).await
    }

    /// A connection for these rows: in the tenant's own line first, then in the pool's.
    async fn reserve_for(&self, scope: &Scope) -> Result<Reserved, StoreError> {
        let until = Instant::now() + self.wait;
        let share = match (&self.shares, scope.tenant()) {
            (Some(shares), Some(tenant)) => {
                let acquired = timeout_at(until, shares.acquire(tenant)).await;
                Some(acquired.map_err(|_| StoreError::ShareInUse)?)
            }
            _ => None,
        };
        let left = until.saturating_duration_since(Instant::now());
        let timeouts = Timeouts { wait: Some(left), ..self.connections.timeouts() };
        let object = self.connections.timeout_get(&timeouts).await.map_err(|error| match error {
            managed::PoolError::Backend(error) => StoreError::Unavailable(error.into()),
            managed::PoolError::Timeout(managed::TimeoutType::Create) => {
                StoreError::Unavailable(sqlx::Error::PoolTimedOut.into())
            }
            _ => StoreError::Busy,
        })?;
        Ok(Reserved { object, preamble: self.preamble.clone(), share })
    }

    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.connections.status();
        let waiting = status.waiting + self.shares.as_ref().map_or(0, |shares| shares.waiting());
        PoolFigures { most: status.max_size, open: status.size, idle: status.available, waiting }
    }
}

/// A connection that is ours, and asks for nothing yet. Dropped, it returns to its pool.
pub(crate) struct Reserved {
    object: Object<Connector>,
    preamble: Option<Arc<str>>,
    share: Option<OwnedSemaphorePermit>,
}

impl Reserved {
    /// The same connection, which from now on sees these rows and no others.
    pub(crate) async fn seeing(self, scope: Scope) -> Result<Link, StoreError> {
        let is_transaction = self.preamble.is_some();
        let mut link = Link::new(self.object, is_transaction, self.share);
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
