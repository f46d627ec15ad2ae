//! A connection that is taken from its pool. It returns to the pool after its work has ended, and
//! is closed if the work was abandoned.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use anneal_core::caller::{Bound, Caller, ConversationId};
use deadpool::managed::Object;
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, time::timeout};
use tracing::Span;

use super::{
    bounded_connection::BoundedConnection,
    connector::{Connector, PooledSession},
    deadline::Deadline,
    row_security::Scope,
};
use crate::error::StoreError;

/// A connection that is taken from its pool. If it is dropped without [`PooledConnection::release`]
/// (after an error, or because the caller disconnected), it is closed, because a statement may
/// still be running on it.
pub(crate) struct PooledConnection {
    object: Option<Object<Connector>>,
    /// Whether everything from taking the connection to its release is one transaction, which
    /// `release` commits.
    is_transaction: bool,
    /// The permit for one connection of the tenant's share; None: no share applies.
    share: Option<OwnedSemaphorePermit>,
    /// The caller's reservation of memory for the rows that are read. It ends when it is dropped;
    /// nothing else is done with it here, so any type will do.
    reservation: Option<Arc<dyn Any + Send + Sync>>,
    /// The span of this use, which ends with it.
    _span: Span,
}

/// Why [`PooledConnection`]'s `object` is present.
const PRESENT: &str = "the connection is present until it is returned or dropped";

/// The longest that a connection with an abandoned statement still counts as in use. PostgreSQL
/// notices within a second that its client has gone (`client_connection_check_interval`).
const ABANDONED_DEADLINE: Duration = Duration::from_secs(1);

impl PooledConnection {
    /// Wraps a connection from the pool, which counts in this share and is used until `deadline`.
    pub(crate) fn new(
        mut object: Object<Connector>,
        deadline: Deadline,
        is_transaction: bool,
        share: Option<OwnedSemaphorePermit>,
        span: Span,
    ) -> Self {
        object.connection.set_deadline(deadline);
        Self {
            object: Some(object),
            is_transaction,
            share,
            reservation: None,
            _span: span,
        }
    }

    /// Keeps this reservation of memory until the connection has ended its work.
    pub(crate) fn attach_reservation(&mut self, reservation: Option<Arc<dyn Any + Send + Sync>>) {
        self.reservation = reservation;
    }

    /// Commits, if the whole use is one transaction, and returns the connection to its pool.
    /// Changes are certain to be stored only after this has succeeded.
    pub(crate) async fn release(mut self) -> Result<(), StoreError> {
        if self.is_transaction {
            let connection = &mut self.session().connection;
            // This statement fails if an earlier one of the transaction has failed. Without it,
            // PostgreSQL would answer the commit with a rollback, and report no error.
            connection.execute("select 1").await?;
            connection.commit().await?;
        }
        self.return_to_pool()
    }

    /// Commits the transaction that the whole use is, and returns the connection to its pool. Every
    /// statement of the transaction has succeeded.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        self.session().connection.commit().await?;
        self.return_to_pool()
    }

    /// Returns the connection to its pool, and frees the buffers' memory that a large row needed.
    /// Fails after the deadline, because a statement may still be running.
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

    /// Ends the use of the connection, as the outcome demands:
    ///
    /// - after a success, releases it;
    /// - after a refusal because of the stored data, rolls back and returns it to its pool;
    /// - after any other error, closes it.
    ///
    /// Returns the outcome, or the error of the release or rollback.
    pub(crate) async fn settle<T>(self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match outcome {
            Ok(done) => self.release().await.map(|()| done),
            Err(refusal) if refusal.is_refusal() => self.roll_back().await.and(Err(refusal)),
            Err(error) => Err(error),
        }
    }

    /// Rolls back, and returns the connection to its pool. Waits for the rollback: a transaction
    /// that was only dropped would keep its locks until the next statement. The ping is that
    /// statement.
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

    /// Narrows the scope of a caller that is bound to a user or an agent to one conversation, if the
    /// caller sees it; otherwise the scope stays, and everything of the conversation is missing. The
    /// policies then compare ids, instead of looking up the conversation of each row.
    pub(crate) async fn narrow_to(
        &mut self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<(), StoreError> {
        if !matches!(caller.bound(), Some(Bound::User(_) | Bound::Agent(_))) {
            return Ok(());
        }
        let is_local = self.is_transaction;
        let narrowed = sqlx::query_scalar!(
            "select set_config('anneal.bound', 'conversation:' || conversation_id, $3) from ai_conversation
             where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
            is_local,
        )
        .fetch_optional(&mut **self)
        .await?;
        if narrowed.is_some() && !is_local {
            self.session().scope = Scope::Bound(caller.tenant(), Bound::Conversation(id));
        }
        Ok(())
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
        // pool and in its tenant's share. Otherwise callers that abandon one call after another
        // could have more statements running than callers that wait.
        let ending = async move {
            let _ = timeout(ABANDONED_DEADLINE, object.connection.ping()).await;
            drop((Object::take(object), reserved));
        };
        // Without a runtime the process is ending. Dropping the future then closes the connection.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(ending);
        }
    }
}
