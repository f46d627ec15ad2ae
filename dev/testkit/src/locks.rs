//! Transactions in which a test holds locks, and functions that wait until other sessions wait for
//! locks or have ended their statements. With these a test decides which side of a race comes
//! first.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{TestApp, TestConversation, eventually};

/// Takes the row lock of a conversation, as appends and job results do.
pub const LOCK_CONVERSATION: &str =
    "select from ai_conversation where conversation_id = $1 for no key update";
/// Locks the jobs of a conversation.
pub const LOCK_JOBS: &str = "select from ai_job where conversation_id = $1 for update";
/// Locks the dead jobs of a conversation.
pub const LOCK_DEAD_JOBS: &str = "select from ai_job_dead where conversation_id = $1 for update";

/// An open transaction of the test. It is rolled back on drop.
pub struct OpenTransaction {
    db: PgConnection,
}

impl OpenTransaction {
    /// Runs another statement with this id in the transaction. Returns the number of affected rows.
    pub async fn run(&mut self, statement: &'static str, id: Uuid) -> u64 {
        let ran = sqlx::query(statement).bind(id).execute(&mut self.db).await;
        ran.expect("the test's statement runs").rows_affected()
    }

    /// Rolls back and releases all locks.
    pub async fn rollback(self) {
        self.finish("rollback").await;
    }

    /// Commits and releases all locks.
    pub async fn commit(self) {
        self.finish("commit").await;
    }

    async fn finish(mut self, how: &'static str) {
        sqlx::query(how)
            .execute(&mut self.db)
            .await
            .expect("the test's transaction ends");
    }
}

impl TestApp {
    /// Starts a transaction and runs a statement with this id in it. Panics if the statement
    /// affects no row.
    pub async fn hold_lock(&self, statement: &'static str, id: Uuid) -> OpenTransaction {
        let mut db = self.db().await;
        sqlx::query("begin")
            .execute(&mut db)
            .await
            .expect("the transaction begins");
        let mut transaction = OpenTransaction { db };
        assert!(
            transaction.run(statement, id).await > 0,
            "the statement has locked no row: {statement}"
        );
        transaction
    }

    /// Waits until no other session of this database runs a statement.
    pub async fn wait_until_statements_end(&self) {
        let mut db = self.db().await;
        eventually("every statement has been answered", async || {
            let count = "select count(*) from pg_stat_activity
                where datname = current_database() and state = 'active' and pid <> pg_backend_pid()";
            let active: i64 = sqlx::query_scalar(count).fetch_one(&mut db).await.expect("the query succeeds");
            active == 0
        })
        .await;
    }

    /// Waits until at least this many sessions of this database wait for locks.
    pub async fn wait_for_lock_waiters(&self, sessions: i64) {
        let mut db = self.db().await;
        eventually("enough sessions wait for locks", async || {
            let count = "select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
            let waiting: i64 = sqlx::query_scalar(count)
                .fetch_one(&mut db)
                .await
                .expect("the query succeeds");
            waiting >= sessions
        })
        .await;
    }
}

impl TestConversation<'_> {
    /// The conversation's id as a UUID.
    pub fn uuid(&self) -> Uuid {
        self.id.parse().expect("the server generates UUIDs")
    }
}
