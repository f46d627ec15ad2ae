//! Opens a pool's connections, and tests those that were idle.

use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleResult};
use sqlx::{Connection as _, PgConnection};

use super::{bounded_connection::BoundedConnection, open::SessionSetup, row_security::Scope};

/// Idle time after which a connection is tested before use. A ping costs a round trip; a dead
/// connection costs a failed call.
const PING_AFTER_IDLE: Duration = Duration::from_millis(500);

/// A connection, and the scope (`row_security.rs`) for which its session is set.
pub(crate) struct PooledSession {
    pub(crate) connection: BoundedConnection,
    pub(crate) scope: Scope,
}

/// Opens connections for deadpool.
pub(crate) struct Connector {
    pub(super) setup: SessionSetup,
}

impl managed::Manager for Connector {
    type Type = PooledSession;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<PooledSession, sqlx::Error> {
        // Boxed, because this future has kilobytes, and would be part of every future that takes a
        // connection.
        let connection = Box::pin(PgConnection::connect_with(&self.setup.options)).await?;
        Ok(PooledSession {
            connection: BoundedConnection::new(connection),
            scope: Scope::Nobody,
        })
    }

    /// Tests a connection that was idle, because its server may be gone. No statement is running:
    /// only connections whose last statement has ended return to the pool.
    async fn recycle(
        &self,
        session: &mut PooledSession,
        metrics: &Metrics,
    ) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() > PING_AFTER_IDLE {
            session.connection.ping().await?;
        }
        Ok(())
    }
}
