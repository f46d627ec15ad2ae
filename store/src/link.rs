//! A connection in use: given back when its work has come to its end, closed when it was given up.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use deadpool::managed::Object;
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _, postgres::PgTransactionManager,
};
use sqlx_core::transaction::TransactionManager as _;
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, time::timeout};

use crate::{
    error::StoreError,
    pool::{Connector, Session},
};

/// A connection in use. Dropped without [`Link::release`] (an error, a caller that went away) it is closed: the next
/// caller must not inherit half a statement.
pub(crate) struct Link {
    object: Option<Object<Connector>>,
    /// Whether its use is one transaction, which ends when it is released.
    is_transaction: bool,
    /// Its part of the tenant's share.
    share: Option<OwnedSemaphorePermit>,
    /// The memory that is reserved for what it reads.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

const HELD: &str = "the connection is taken out only when the link is dropped";

/// How long a connection whose statement was given up counts as in use: after a second PostgreSQL notices by itself that its
/// client has gone (`client_connection_check_interval`).
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(1);

impl Link {
    /// A connection that counts in this share.
    pub(crate) const fn new(
        object: Object<Connector>,
        is_transaction: bool,
        share: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { object: Some(object), is_transaction, share, held: None }
    }

    /// Keeps memory reserved as long as the connection may read into it or write from it.
    pub(crate) fn hold(&mut self, held: Option<Arc<dyn Any + Send + Sync>>) {
        self.held = held;
    }

    /// Gives the connection back to its pool. Until this has returned, nothing is certain to be stored.
    pub(crate) async fn release(mut self) -> Result<(), StoreError> {
        if self.is_transaction {
            let connection = &mut self.session().connection;
            // A transaction in which something has failed would answer COMMIT with ROLLBACK, and no error.
            connection.execute("select 1").await?;
            PgTransactionManager::commit(connection).await?;
        }
        self.give_back();
        Ok(())
    }

    /// Back to the pool, without the memory that a large row has left in its buffers.
    fn give_back(&mut self) {
        self.session().connection.shrink_buffers();
        drop(self.object.take());
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
        self.give_back();
        Ok(())
    }

    pub(crate) async fn begin_with(&mut self, begin: String) -> Result<(), StoreError> {
        let connection = &mut self.session().connection;
        Ok(PgTransactionManager::begin(connection, Some(AssertSqlSafe(begin).into_sql_str())).await?)
    }

    pub(crate) fn session(&mut self) -> &mut Session {
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
        let Some(mut object) = self.object.take() else { return };
        let reserved = (self.share.take(), self.held.take());
        // The statement goes on in the database. Until it has ended, the connection counts in its pool and in its tenant's share:
        // calls that are given up one after another must not have more statements under way than calls that are not.
        let ending = async move {
            let _ = timeout(GIVEN_UP_WITHIN, object.connection.ping()).await;
            drop((Object::take(object), reserved));
        };
        // Without a runtime the process is ending: the connection is closed with the future.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(ending);
        }
    }
}
