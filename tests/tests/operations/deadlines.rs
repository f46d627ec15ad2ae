//! Calls that exceed their deadline: the caller gets DEADLINE_EXCEEDED, and the statement in
//! PostgreSQL ends.

use std::time::{Duration, Instant};

use anneal_tests::{TestApp, TestConversation, assert_refused, eventually, pb};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use tonic::{Code, Request};

/// Longer than the server needs to notice a lost call, and far shorter than the statement timeout.
const DEADLINE: Duration = Duration::from_secs(20);
/// Deadline of a call that sets none.
const DEFAULT: Duration = Duration::from_secs(10);

/// Locks a conversation's row against changes.
async fn lock_row<'a>(
    db: &'a mut PgConnection,
    conversation: &TestConversation<'_>,
) -> Transaction<'a, Postgres> {
    let mut transaction = db.begin().await.expect("begins");
    let row = "select from ai_conversation where conversation_id = $1::text::uuid for update";
    sqlx::query(row)
        .bind(&conversation.id)
        .execute(&mut *transaction)
        .await
        .expect("holds the row");
    transaction
}

/// Number of statements of the service that wait for a lock.
async fn count_waiting_statements(app: &TestApp) -> i64 {
    let waiting = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'anneal' and wait_event_type = 'Lock'";
    sqlx::query_scalar(waiting)
        .fetch_one(&mut app.db().await)
        .await
        .expect("looks")
}

fn deletion(conversation: &TestConversation<'_>) -> pb::DeleteConversationRequest {
    pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_statement_ends_soon_after_its_calls_deadline() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut db = app.db().await;
    let lock = lock_row(&mut db, &conversation).await;
    let mut ask = Request::new(deletion(&conversation));
    ask.set_timeout(Duration::from_secs(15));
    let mut conversations = app.conversations();
    let call = tokio::spawn(async move { conversations.delete_conversation(ask).await });
    eventually("its statement waits for the row", async || {
        count_waiting_statements(&app).await == 1
    })
    .await;
    call.await
        .expect("ends")
        .expect_err("the deadline is exceeded");
    let ends = tokio::time::timeout(
        DEADLINE,
        eventually("it has ended", async || {
            count_waiting_statements(&app).await == 0
        }),
    )
    .await;
    assert!(ends.is_ok(), "PostgreSQL still waits for the row");
    lock.rollback().await.expect("rolls back");
    assert_eq!(
        conversation.conversation().await.conversation_id,
        conversation.id,
        "the conversation is not deleted"
    );
}

#[tokio::test]
async fn a_call_without_a_deadline_gets_ten_seconds() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut db = app.db().await;
    let lock = lock_row(&mut db, &conversation).await;
    let began = Instant::now();
    let answer = tokio::time::timeout(
        DEFAULT + DEADLINE,
        app.conversations()
            .delete_conversation(deletion(&conversation)),
    )
    .await;
    assert_refused(
        answer.expect("is answered"),
        Code::DeadlineExceeded,
        "DEADLINE_EXCEEDED",
        "",
    );
    assert!(
        began.elapsed() >= DEFAULT,
        "it was given {:?}",
        began.elapsed()
    );
    lock.rollback().await.expect("rolls back");
}
