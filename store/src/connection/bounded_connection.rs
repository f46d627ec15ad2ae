//! A connection whose statements have a deadline, and the transactions on it. The store's functions
//! take a [`BoundedConnection`] where sqlx's functions take a [`PgConnection`].

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt as _},
};
use sqlx::{
    Connection as _, Describe, Either, Execute, Executor, PgConnection, Postgres, SqlStr,
    postgres::{PgQueryResult, PgRow, PgStatement, PgTransactionManager, PgTypeInfo},
};
use sqlx_core::transaction::TransactionManager as _;

use super::deadline::{Deadline, exceeded};

/// A connection, and the deadline of its current use. A statement that has no answer by then fails
/// like one on a socket whose other end does not answer.
#[derive(Debug)]
pub(crate) struct BoundedConnection {
    connection: PgConnection,
    deadline: Deadline,
}

impl BoundedConnection {
    /// Wraps a connection, without a deadline at first.
    pub(crate) const fn new(connection: PgConnection) -> Self {
        Self {
            connection,
            deadline: Deadline::NONE,
        }
    }

    /// The connection without its deadline: for sqlx's migrator.
    pub(crate) const fn unbounded(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Sets the deadline of the use that begins now.
    pub(super) const fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Whether the deadline of the current use has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        self.deadline.has_passed()
    }

    /// Tests the connection with one round trip.
    pub(super) async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.deadline.bound(self.connection.ping()).await
    }

    /// Frees the buffers' memory that a large row needed.
    pub(super) fn shrink_buffers(&mut self) {
        self.connection.shrink_buffers();
    }

    /// Whether the connection is in a transaction.
    pub(crate) fn is_in_transaction(&self) -> bool {
        PgTransactionManager::get_transaction_depth(&self.connection) > 0
    }

    /// Begins a transaction, or a savepoint within one. It is rolled back if it is dropped.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_>, sqlx::Error> {
        self.begin_with(None).await?;
        Ok(Transaction {
            connection: self,
            is_open: true,
        })
    }

    /// Begins a transaction with this statement instead of `begin`.
    pub(super) async fn begin_with(
        &mut self,
        statement: Option<SqlStr>,
    ) -> Result<(), sqlx::Error> {
        let begin = PgTransactionManager::begin(&mut self.connection, statement);
        self.deadline.bound(begin).await
    }

    /// Commits the innermost transaction or savepoint.
    pub(super) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let commit = PgTransactionManager::commit(&mut self.connection);
        self.deadline.bound(commit).await
    }

    /// Rolls back the innermost transaction or savepoint.
    pub(super) async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        let rollback = PgTransactionManager::rollback(&mut self.connection);
        self.deadline.bound(rollback).await
    }
}

impl<'c> Executor<'c> for &'c mut BoundedConnection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let mut rows = self.connection.fetch_many(query);
        let Some(mut timeout) = self.deadline.sleep().map(Box::pin) else {
            return rows;
        };
        stream::poll_fn(move |context| {
            let row = rows.poll_next_unpin(context);
            if row.is_ready() {
                return row;
            }
            timeout.poll_unpin(context).map(|()| Some(Err(exceeded())))
        })
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let row = self.connection.fetch_optional(query);
        self.deadline.bound(row).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        let prepared = self.connection.prepare_with(sql, parameters);
        self.deadline.bound(prepared).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        let described = self.connection.describe(sql);
        self.deadline.bound(described).boxed()
    }
}

/// Sets how long each of the next statements of the connection's transaction may take.
pub(crate) async fn set_statement_timeout(
    db: &mut BoundedConnection,
    limit: Duration,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "select set_config('statement_timeout', $1, true) as value",
        format!("{}ms", limit.as_millis()),
    )
    .fetch_one(db)
    .await?;
    Ok(())
}

/// A transaction, or a savepoint within one.
pub(crate) struct Transaction<'c> {
    connection: &'c mut BoundedConnection,
    is_open: bool,
}

impl Transaction<'_> {
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.connection.commit().await?;
        self.is_open = false;
        Ok(())
    }

    pub(crate) async fn rollback(mut self) -> Result<(), sqlx::Error> {
        self.connection.roll_back().await?;
        self.is_open = false;
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = BoundedConnection;

    fn deref(&self) -> &BoundedConnection {
        self.connection
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut BoundedConnection {
        self.connection
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // Only prepares the rollback, which is sent with the next statement.
            PgTransactionManager::start_rollback(&mut self.connection.connection);
        }
    }
}
