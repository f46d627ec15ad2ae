//! A connection in use: returned to its pool after its work has ended, closed if the work was
//! abandoned.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use deadpool::managed::Object;
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, time::timeout};

use super::{
    bounded_connection::BoundedConnection,
    connector::{Connector, PooledSession},
    deadline::Deadline,
};
use crate::error::StoreError;

/// A connection in use. If it is dropped without [`PooledConnection::release`] (after an error, or
/// because the caller went away), it is closed: the next caller must not inherit half a statement.
pub(crate) struct PooledConnection {
    object: Option<Object<Connector>>,
    /// Whether its whole use is one transaction, which `release` commits.
    is_transaction: bool,
    /// The connection's part of its tenant's share.
    share: Option<OwnedSemaphorePermit>,
    /// The memory that is reserved for what is read over the connection.
    reservation: Option<Arc<dyn Any + Send + Sync>>,
}

const PRESENT: &str = "the connection is present until it is returned or dropped";

/// How long a connection with an abandoned statement counts as in use. PostgreSQL notices within a
/// second that its client has gone (`client_connection_check_interval`).
const ABANDONED_DEADLINE: Duration = Duration::from_secs(1);

impl PooledConnection {
    /// Wraps a connection from the pool, which counts in this share and is used until `deadline`.
    pub(crate) fn new(
        mut object: Object<Connector>,
        deadline: Deadline,
        is_transaction: bool,
        share: Option<OwnedSemaphorePermit>,
    ) -> Self {
        object.connection.set_deadline(deadline);
        Self {
            object: Some(object),
            is_transaction,
            share,
            reservation: None,
        }
    }

    /// Keeps memory reserved as long as the connection may read into it or write from it.
    pub(crate) fn attach_reservation(&mut self, reservation: Option<Arc<dyn Any + Send + Sync>>) {
        self.reservation = reservation;
    }

    /// Returns the connection to its pool. Nothing is certain to be stored before this has
    /// succeeded.
    pub(crate) async fn release(mut self) -> Result<(), StoreError> {
        if self.is_transaction {
            let connection = &mut self.session().connection;
            // In a transaction in which a statement has failed, PostgreSQL would answer COMMIT with
            // ROLLBACK and without an error.
            connection.execute("select 1").await?;
            connection.commit().await?;
        }
        self.return_to_pool()
    }

    /// Returns the connection to its pool, without the memory that a large row has left in its
    /// buffers. Fails after the deadline: a statement may have been given up.
    fn return_to_pool(&mut self) -> Result<(), StoreError> {
        let connection = &mut self.session().connection;
        if connection.is_past_deadline() {
            return Err(StoreError::Unresponsive);
        }
        connection.shrink_buffers();
        connection.set_deadline(Deadline::NONE);
        drop(self.object.take());
        Ok(())
    }

    /// Returns the connection to its pool after an outcome that leaves it usable: success, or a
    /// refusal because of the data.
    pub(crate) async fn settle<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match outcome {
            Ok(done) => self.release().await.map(|()| done),
            Err(refusal) if refusal.is_refusal() => self.roll_back().await.and(Err(refusal)),
            Err(error) => Err(error),
        }
    }

    /// Rolls back, and returns the connection to its pool. A dropped transaction would end only
    /// with the next statement, and keep its locks until then.
    pub(crate) async fn roll_back(mut self) -> Result<(), StoreError> {
        let is_transaction = self.is_transaction;
        let connection = &mut self.session().connection;
        if is_transaction {
            connection.roll_back().await?;
        } else {
            connection.ping().await?;
        }
        self.return_to_pool()
    }

    pub(crate) async fn begin_with(&mut self, begin: String) -> Result<(), StoreError> {
        let begin = AssertSqlSafe(begin).into_sql_str();
        Ok(self.session().connection.begin_with(Some(begin)).await?)
    }

    pub(crate) fn session(&mut self) -> &mut PooledSession {
        self.object.as_mut().expect(PRESENT)
    }
}

impl Deref for PooledConnection {
    type Target = BoundedConnection;

    fn deref(&self) -> &BoundedConnection {
        &self.object.as_ref().expect(PRESENT).connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut BoundedConnection {
        &mut self.session().connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(mut object) = self.object.take() else {
            return;
        };
        object.connection.set_deadline(Deadline::NONE);
        let reserved = (self.share.take(), self.reservation.take());
        // The statement continues in the database. Until it has ended, the connection counts in its
        // pool and in its tenant's share: callers that abandon one call after another must not have
        // more statements running than callers that wait.
        let ending = async move {
            let _ = timeout(ABANDONED_DEADLINE, object.connection.ping()).await;
            drop((Object::take(object), reserved));
        };
        // Without a runtime the process is ending. The connection is then closed with the future.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(ending);
        }
    }
}
