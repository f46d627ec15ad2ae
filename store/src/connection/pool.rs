//! Pools of connections: deadpool over sqlx's PostgreSQL connection. A call waits for its tenant's
//! share first, then for a free connection; both waits together are bounded.
//! `row_security.rs` restricts the connection to the tenants of the call.

use std::{sync::Arc, time::Duration};

use deadpool::managed::{self, Object, Timeouts};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use super::{
    connector::Connector,
    deadline::Deadline,
    open::SessionSetup,
    pooled_connection::PooledConnection,
    row_security::{Scope, SettingLifetime},
    tenant_shares::TenantShares,
};
use crate::error::StoreError;

/// How long a tested connection has to answer. Its other end may be gone without an error on this
/// side.
const PING_DEADLINE: Duration = Duration::from_secs(1);

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Connector>,
    preamble: Option<Arc<str>>,
    /// How long a call waits in total for its tenant's share and for a connection.
    wait: Duration,
    /// How long one use of a connection may take, from the wait for it to its release. None: the
    /// caller limits it.
    limit: Option<Duration>,
    /// None: a tenant may use all connections.
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
    pub(crate) fn new(setup: SessionSetup, most: u32, wait: Duration) -> Self {
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
            connections,
            preamble,
            wait,
            limit: None,
            shares: None,
        }
    }

    /// The same pool, each of whose uses of a connection may take at most `limit`.
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

    /// Limits each tenant to `percent` of the pool's connections.
    pub(crate) fn shared_by_tenants(self, percent: u32) -> Self {
        let most = self.connections.status().max_size;
        Self {
            shares: Some(Arc::new(TenantShares::new(most, percent))),
            ..self
        }
    }

    /// Takes a connection that sees the rows of `scope`, within the pool's waiting time. It counts
    /// in the tenant's share if the scope is one tenant's. The queue, and work for several tenants
    /// at once, have no share and wait for none.
    pub(crate) async fn checkout(
        &self,
        scope: impl Into<Scope>,
    ) -> Result<PooledConnection, StoreError> {
        let scope = scope.into();
        self.acquire(&scope).await?.set_scope(scope).await
    }

    /// Takes a connection as [`Self::checkout`] does, for a read-only transaction in which every
    /// read sees the database as it is now.
    pub(crate) async fn checkout_snapshot(
        &self,
        scope: impl Into<Scope>,
    ) -> Result<PooledConnection, StoreError> {
        let scope = scope.into();
        let UnscopedConnection {
            object,
            deadline,
            preamble,
            share,
        } = self.acquire(&scope).await?;
        let mut connection = PooledConnection::new(object, deadline, true, share);
        let preamble = preamble
            .map(|preamble| format!("; {preamble}"))
            .unwrap_or_default();
        let names = scope.statement(SettingLifetime::Transaction);
        connection
            .begin_with(format!(
                "begin isolation level repeatable read read only{preamble}; {names}"
            ))
            .await?;
        Ok(connection)
    }

    /// Takes a connection before it is known whose rows it is for.
    pub(crate) async fn checkout_without_scope(&self) -> Result<UnscopedConnection, StoreError> {
        self.acquire(&Scope::Nobody).await
    }

    /// Takes a connection. Its deadline includes the wait for it.
    async fn acquire(&self, scope: &Scope) -> Result<UnscopedConnection, StoreError> {
        let deadline = self.deadline();
        let (object, share) = deadline.bound(self.wait_for_connection(scope)).await?;
        Ok(UnscopedConnection {
            object,
            deadline,
            preamble: self.preamble.clone(),
            share,
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
        let left = until.saturating_duration_since(Instant::now());
        let timeouts = Timeouts {
            wait: Some(left),
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

    pub(crate) fn figures(&self) -> PoolFigures {
        let status = self.connections.status();
        let waiting = status.waiting + self.shares.as_ref().map_or(0, |shares| shares.waiting());
        PoolFigures {
            most: status.max_size,
            open: status.size,
            idle: status.available,
            waiting,
        }
    }
}

/// A connection taken from the pool, without a scope yet. If it is dropped, it returns to the pool.
pub(crate) struct UnscopedConnection {
    object: Object<Connector>,
    deadline: Deadline,
    preamble: Option<Arc<str>>,
    share: Option<OwnedSemaphorePermit>,
}

impl UnscopedConnection {
    /// Restricts the connection to the rows of `scope`.
    pub(crate) async fn set_scope(self, scope: Scope) -> Result<PooledConnection, StoreError> {
        let is_transaction = self.preamble.is_some();
        let mut connection =
            PooledConnection::new(self.object, self.deadline, is_transaction, self.share);
        if let Some(preamble) = self.preamble {
            let names = scope.statement(SettingLifetime::Transaction);
            connection
                .begin_with(format!(
                    "begin isolation level read committed; {preamble}; {names}"
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
