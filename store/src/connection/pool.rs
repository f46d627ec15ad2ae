//! Pools of connections: deadpool manages connections of sqlx. A call waits first until its tenant
//! uses less than its share of the pool, and then for a free connection; both waits together have a
//! limit. The connection is then restricted to the rows of the call's tenants (`row_security.rs`).

use std::{sync::Arc, time::Duration};

use anneal_trace::SpanRole;
use deadpool::managed::{self, Object, Timeouts};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use tracing::{Level, Span, debug_span, span_enabled};

use super::{
    connector::Connector,
    deadline::Deadline,
    open::SessionSetup,
    pooled_connection::PooledConnection,
    row_security::{Scope, SettingLifetime},
    tenant_shares::TenantShares,
};
use crate::error::StoreError;

/// How long a connection that is tested may take to answer.
const PING_DEADLINE: Duration = Duration::from_secs(1);

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    /// Its name in metrics.
    name: &'static str,
    connections: managed::Pool<Connector>,
    /// [`SessionSetup::preamble`].
    preamble: Option<Arc<str>>,
    /// How long a call waits in total for its tenant's share and for a connection.
    wait: Duration,
    /// How long one use of a connection may take, including the wait for the connection. None: the
    /// caller sets a limit itself.
    limit: Option<Duration>,
    /// How many connections each tenant may use. None: a tenant may use all connections.
    shares: Option<Arc<TenantShares>>,
}

/// How busy a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFigures {
    /// Most connections that may be open.
    pub most: usize,
    /// Open connections.
    pub open: usize,
    /// Open connections that are free.
    pub idle: usize,
    /// Calls that wait for a connection, or for their tenant's share.
    pub waiting: usize,
}

impl Pool {
    /// Creates a pool of at most `most` connections; a caller waits up to `wait` for a free one.
    /// Opening a new connection takes several round trips, so it may take 5 s if `wait` is shorter.
    /// Metrics have the pool's name.
    pub(crate) fn new(name: &'static str, setup: SessionSetup, most: u32, wait: Duration) -> Self {
        let preamble = setup.preamble.as_deref().map(Arc::from);
        let built = managed::Pool::builder(Connector { setup })
            .max_size(most.max(1) as usize)
            .wait_timeout(Some(wait))
            .create_timeout(Some(wait.max(Duration::from_secs(5))))
            .recycle_timeout(Some(PING_DEADLINE))
            .runtime(deadpool::Runtime::Tokio1)
            .build();
        let connections = built.expect("timeouts need a runtime, and one is set");
        Self {
            name,
            connections,
            preamble,
            wait,
            limit: None,
            shares: None,
        }
    }

    /// The same pool, where each use of a connection may take at most `limit`.
    pub(crate) fn with_deadline(self, limit: Duration) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.limit)
    }

    /// Limits each tenant to `percent` of the pool's connections, rounded up, at least one.
    pub(crate) fn shared_by_tenants(self, percent: u32) -> Self {
        let most = self.connections.status().max_size;
        Self {
            shares: Some(Arc::new(TenantShares::new(most, percent))),
            ..self
        }
    }

    /// Takes a connection that sees only the rows of `scope`. Waits for a free one at most for the
    /// pool's waiting time. If the scope names exactly one tenant, the connection counts in that
    /// tenant's share; other scopes have no share.
    pub(crate) async fn checkout(
        &self,
        scope: impl Into<Scope>,
    ) -> Result<PooledConnection, StoreError> {
        let scope = scope.into();
        self.acquire(&scope).await?.set_scope(scope).await
    }

    /// Takes a connection as [`Self::checkout`] does, and begins a read-only transaction whose
    /// reads all see one snapshot of the database.
    pub(crate) async fn checkout_snapshot(
        &self,
        scope: impl Into<Scope>,
    ) -> Result<PooledConnection, StoreError> {
        self.begin_at("repeatable read read only", scope.into())
            .await
    }

    /// Takes a connection as [`Self::checkout`] does, and begins a transaction, which
    /// [`PooledConnection::commit`] ends. The scope is the transaction's: a scope that differs from
    /// that of the connection's other uses costs no statement.
    pub(crate) async fn checkout_transaction(
        &self,
        scope: impl Into<Scope>,
    ) -> Result<PooledConnection, StoreError> {
        self.begin_at("read committed", scope.into()).await
    }

    /// Takes a connection, and begins a transaction of this isolation level and scope on it.
    async fn begin_at(
        &self,
        isolation_level: &str,
        scope: Scope,
    ) -> Result<PooledConnection, StoreError> {
        let UnscopedConnection {
            object,
            deadline,
            preamble,
            share,
            span,
        } = self.acquire(&scope).await?;
        let mut connection = PooledConnection::new(object, deadline, true, share, span);
        let preamble = preamble
            .map(|preamble| format!("; {preamble}"))
            .unwrap_or_default();
        let scope_statement = scope.statement(SettingLifetime::Transaction);
        connection
            .begin_with(format!(
                "begin isolation level {isolation_level}{preamble}; {scope_statement}"
            ))
            .await?;
        Ok(connection)
    }

    /// Takes a connection before it is known which tenants' rows it is for.
    pub(crate) async fn checkout_without_scope(&self) -> Result<UnscopedConnection, StoreError> {
        self.acquire(&Scope::Nobody).await
    }

    /// Takes a connection without setting its scope. The deadline includes the wait for it.
    async fn acquire(&self, scope: &Scope) -> Result<UnscopedConnection, StoreError> {
        let (deadline, span) = (self.deadline(), connection_span());
        let started = Instant::now();
        let waited = deadline.bound(self.wait_for_connection(scope)).await;
        metrics::histogram!("anneal_db_pool_wait_seconds", "pool" => self.name)
            .record(started.elapsed().as_secs_f64());
        let (object, share) = waited?;
        Ok(UnscopedConnection {
            object,
            deadline,
            preamble: self.preamble.clone(),
            share,
            span,
        })
    }

    /// Waits in the tenant's own queue first, then in the pool's, both within `wait`.
    async fn wait_for_connection(
        &self,
        scope: &Scope,
    ) -> Result<(Object<Connector>, Option<OwnedSemaphorePermit>), StoreError> {
        let until = Instant::now() + self.wait;
        let share = match (&self.shares, scope.tenant()) {
            (Some(shares), Some(tenant)) => {
                let acquired = timeout_at(until, shares.acquire(tenant)).await;
                Some(acquired.map_err(|_| StoreError::ShareInUse)?)
            }
            _ => None,
        };
        let remaining = until.saturating_duration_since(Instant::now());
        let timeouts = Timeouts {
            wait: Some(remaining),
            ..self.connections.timeouts()
        };
        let object =
            self.connections
                .timeout_get(&timeouts)
                .await
                .map_err(|error| match error {
                    managed::PoolError::Backend(error) => StoreError::Unavailable(error.into()),
                    managed::PoolError::Timeout(managed::TimeoutType::Create) => {
                        StoreError::Unavailable(sqlx::Error::PoolTimedOut.into())
                    }
                    _ => StoreError::Busy,
                })?;
        Ok((object, share))
    }

    /// The pool's name in metrics, and how busy it is.
    pub(crate) fn figures(&self) -> (&'static str, PoolFigures) {
        let status = self.connections.status();
        let waiting = status.waiting + self.shares.as_ref().map_or(0, |shares| shares.waiting());
        let figures = PoolFigures {
            most: status.max_size,
            open: status.size,
            idle: status.available,
            waiting,
        };
        (self.name, figures)
    }
}

/// A connection taken from the pool, without a scope yet. If it is dropped, it returns to the pool.
pub(crate) struct UnscopedConnection {
    object: Object<Connector>,
    deadline: Deadline,
    preamble: Option<Arc<str>>,
    share: Option<OwnedSemaphorePermit>,
    span: Span,
}

impl UnscopedConnection {
    /// Restricts the connection to the rows of `scope`.
    pub(crate) async fn set_scope(self, scope: Scope) -> Result<PooledConnection, StoreError> {
        let is_transaction = self.preamble.is_some();
        let mut connection = PooledConnection::new(
            self.object,
            self.deadline,
            is_transaction,
            self.share,
            self.span,
        );
        if let Some(preamble) = self.preamble {
            let scope_statement = scope.statement(SettingLifetime::Transaction);
            connection
                .begin_with(format!(
                    "begin isolation level read committed; {preamble}; {scope_statement}"
                ))
                .await?;
            return Ok(connection);
        }
        let session = connection.session();
        if session.scope != scope {
            session
                .connection
                .execute(AssertSqlSafe(scope.statement(SettingLifetime::Session)))
                .await?;
            session.scope = scope;
        }
        Ok(connection)
    }
}

/// The span of one use of a connection, with the wait for it. It is a part of a call or of a job;
/// other uses, those of background loops, have none.
fn connection_span() -> Span {
    if span_enabled!(Level::DEBUG) && !Span::current().is_none() {
        let span = debug_span!("postgresql");
        anneal_trace::describe_span(&span, SpanRole::Client, "postgresql");
        anneal_trace::set_attribute(&span, "db.system.name", "postgresql");
        span
    } else {
        Span::none()
    }
}
