//! Transactions of the test's own that stand in the way of others, and waiting until those wait: the order in which two sides
//! of a race come is then the test's.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{House, Talk, eventually};

/// The row lock that appends and results take.
pub const CONVERSATION: &str = "select from ai_conversation where conversation_id = $1 for no key update";
/// The jobs of a conversation.
pub const JOBS: &str = "select from ai_job where conversation_id = $1 for update";
/// The dead jobs of a conversation.
pub const DEAD_JOBS: &str = "select from ai_job_dead where conversation_id = $1 for update";

/// An open transaction of the test. Dropped, it is rolled back.
pub struct Holding {
    db: PgConnection,
}

impl Holding {
    /// Runs another statement with this id in the same transaction; returns the rows that it touched.
    pub async fn also(&mut self, statement: &'static str, id: Uuid) -> u64 {
        let ran = sqlx::query(statement).bind(id).execute(&mut self.db).await;
        ran.expect("the test's statement runs").rows_affected()
    }

    /// Lets go of everything, and takes back what was written.
    pub async fn let_go(self) {
        self.end("rollback").await;
    }

    /// Lets go of everything; what was written stays.
    pub async fn commit(self) {
        self.end("commit").await;
    }

    async fn end(mut self, how: &'static str) {
        sqlx::query(how).execute(&mut self.db).await.expect("the test's transaction ends");
    }
}

impl House {
    /// Runs a statement with this id in a transaction of the test, which stays open. The statement must find something.
    pub async fn holding(&self, statement: &'static str, id: Uuid) -> Holding {
        let mut db = self.db().await;
        sqlx::query("begin").execute(&mut db).await.expect("begins");
        let mut holding = Holding { db };
        assert!(holding.also(statement, id).await > 0, "nothing is there to hold: {statement}");
        holding
    }

    /// Returns once no other session of this database is in the middle of a statement.
    pub async fn answered(&self) {
        let mut db = self.db().await;
        eventually("every statement has been answered", async || {
            let count = "select count(*) from pg_stat_activity
                where datname = current_database() and state = 'active' and pid <> pg_backend_pid()";
            let active: i64 = sqlx::query_scalar(count).fetch_one(&mut db).await.expect("asks");
            active == 0
        })
        .await;
    }

    /// Returns once so many sessions of this database wait for locks.
    pub async fn waiting(&self, sessions: i64) {
        let mut db = self.db().await;
        eventually("sessions wait for locks", async || {
            let count = "select count(*) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'";
            let waiting: i64 = sqlx::query_scalar(count).fetch_one(&mut db).await.expect("asks");
            waiting >= sessions
        })
        .await;
    }
}

impl Talk<'_> {
    /// Its id, as tables have it.
    pub fn uuid(&self) -> Uuid {
        self.id.parse().expect("the server makes ids")
    }
}
