//! Pools of connections: deadpool over sqlx's PostgreSQL connection. A call waits for its tenant's
//! share first, then for a free connection; both waits together are bounded.
//! `row_security.rs` restricts the connection to the tenants of the call.

use std::{sync::Arc, time::Duration};

use deadpool::managed::{self, Object, Timeouts};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, postgres::PgTransactionManager};
use sqlx_core::transaction::TransactionManager as _;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use super::{
    connector::Connector,
    open::SessionSetup,
    pooled_connection::PooledConnection,
    row_security::{Scope, SettingLifetime},
    tenant_shares::TenantShares,
};
use crate::error::StoreError;

/// How long a tested connection has to answer. Its other end may be gone without an error on this
/// side.
const PING_DEADLINE: Duration = Duration::from_secs(1);

/// Whether this connection is in a transaction, which a refused statement would end.
pub(crate) fn is_in_transaction(db: &PgConnection) -> bool {
    PgTransactionManager::get_transaction_depth(db) > 0
}

/// A bounded set of connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Connector>,
    preamble: Option<Arc<str>>,
    /// How long a call waits in total for its tenant's share and for a connection.
    wait: Duration,
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
            shares: None,
        }
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
            preamble,
            share,
        } = self.acquire(&scope).await?;
        let mut connection = PooledConnection::new(object, true, share);
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

    /// Takes a connection: waits in the tenant's own queue first, then in the pool's, both within
    /// `wait`.
    async fn acquire(&self, scope: &Scope) -> Result<UnscopedConnection, StoreError> {
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
        Ok(UnscopedConnection {
            object,
            preamble: self.preamble.clone(),
            share,
        })
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
    preamble: Option<Arc<str>>,
    share: Option<OwnedSemaphorePermit>,
}

impl UnscopedConnection {
    /// Restricts the connection to the rows of `scope`.
    pub(crate) async fn set_scope(self, scope: Scope) -> Result<PooledConnection, StoreError> {
        let is_transaction = self.preamble.is_some();
        let mut connection = PooledConnection::new(self.object, is_transaction, self.share);
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
