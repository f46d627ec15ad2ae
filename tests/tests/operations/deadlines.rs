//! A call that exceeds its deadline is answered with DEADLINE_EXCEEDED, and its statement in
//! PostgreSQL ends. The store functions give up at the deadline of their store.

use std::time::{Duration, Instant};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    policy::SessionSettings,
};
use anneal_store::{AppendSettings, Entity, PageAsk, ReadBudget, Store, StoreError, StoreSettings};
use anneal_testkit::{TcpProxy, TestApp, TestConversation, assert_refused, eventually, pb};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use tonic::{Code, Request};
use uuid::Uuid;

/// How long a test waits for a call or a statement to end: longer than the server takes to notice
/// that a call has ended, and far shorter than PostgreSQL's statement timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The server's deadline for a call that sets none.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Locks a conversation's row against changes.
async fn lock_row<'a>(
    db: &'a mut PgConnection,
    conversation: &TestConversation<'_>,
) -> Transaction<'a, Postgres> {
    let mut transaction = db.begin().await.expect("begins");
    let lock = "select from ai_conversation where conversation_id = $1::text::uuid for update";
    sqlx::query(lock)
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

fn delete_request(conversation: &TestConversation<'_>) -> pb::DeleteConversationRequest {
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
    let mut ask = Request::new(delete_request(&conversation));
    // Long enough for a slow machine to see the statement wait before the deadline.
    ask.set_timeout(Duration::from_secs(15));
    let mut conversations = app.conversations();
    let call = tokio::spawn(async move { conversations.delete_conversation(ask).await });
    eventually("the statement waits for the row", async || {
        count_waiting_statements(&app).await == 1
    })
    .await;
    let status = call
        .await
        .expect("ends")
        .expect_err("the deadline is exceeded");
    // The client of this test has the same deadline. If it gives up first, its code is CANCELLED.
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status:?}"
    );
    let ended = tokio::time::timeout(
        TEST_TIMEOUT,
        eventually("the statement has ended", async || {
            count_waiting_statements(&app).await == 0
        }),
    )
    .await;
    assert!(ended.is_ok(), "the statement still waits for the row");
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
        DEFAULT_DEADLINE + TEST_TIMEOUT,
        app.conversations()
            .delete_conversation(delete_request(&conversation)),
    )
    .await;
    assert_refused(
        answer.expect("is answered"),
        Code::DeadlineExceeded,
        "DEADLINE_EXCEEDED",
        "",
    );
    assert!(
        began.elapsed() >= DEFAULT_DEADLINE,
        "the call was given only {:?}",
        began.elapsed()
    );
    lock.rollback().await.expect("rolls back");
}

/// Deadline of a store in these tests. Without it, the calls would wait far longer.
const STORE_DEADLINE: Duration = Duration::from_secs(2);
const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// A store with this many write connections and no deadline. A call waits up to a minute for a free
/// connection, longer than [`TEST_TIMEOUT`].
fn store(url: &str, write_connections: u32) -> Store {
    let settings = StoreSettings {
        write_connections,
        pool_wait_ms: 60_000,
        ..StoreSettings::at(url)
    };
    let (append, session) = (AppendSettings::default(), SessionSettings::default());
    Store::new(settings, append, session).expect("the URL is good")
}

/// Fails unless the call gives up at the store's deadline.
async fn assert_unresponsive<T: std::fmt::Debug>(
    call: impl Future<Output = Result<T, StoreError>>,
) {
    let began = Instant::now();
    let answer = tokio::time::timeout(TEST_TIMEOUT, call).await;
    let answer = answer.expect("the call does not wait for the database for ever");
    assert!(
        matches!(answer, Err(StoreError::Unresponsive)),
        "{answer:?}"
    );
    assert!(began.elapsed() >= STORE_DEADLINE, "{:?}", began.elapsed());
}

fn open_connections(store: &Store, pool: &str) -> usize {
    let figures = store.pool_figures();
    let of_pool = figures.iter().find(|(name, _)| *name == pool);
    of_pool.expect("there is such a pool").1.open
}

#[tokio::test]
async fn a_store_with_a_deadline_gives_up_silent_connections_and_opens_others() {
    let app = TestApp::start().await;
    let (proxy, url) = TcpProxy::to_database(&app.url).await;
    let store = store(&url, 4).with_deadline(STORE_DEADLINE);
    let unknown_id = ConversationId(Uuid::nil());
    let page = PageAsk {
        after: None,
        newest_first: false,
        content: true,
        limit: 1,
    };
    let budget = ReadBudget::unlimited();
    // Three kinds of statement: one row, a stream of rows, and the begin of a transaction.
    let read_one = || store.get_conversation(CALLER, unknown_id);
    let read_stream = || store.list_messages_after(CALLER, unknown_id, page, &budget);
    let write = || store.delete_conversation(CALLER, unknown_id);
    let is_answered = |answer| matches!(answer, Err(StoreError::NotFound(Entity::Conversation)));
    assert!(is_answered(read_one().await.map(drop)));
    proxy.stall();
    assert_unresponsive(read_one()).await;
    assert!(
        is_answered(read_one().await.map(drop)),
        "on another connection"
    );
    proxy.stall();
    assert_unresponsive(read_stream()).await;
    assert!(is_answered(write().await.map(drop)));
    proxy.stall();
    assert_unresponsive(write()).await;
    assert!(
        is_answered(write().await.map(drop)),
        "on another connection"
    );
}

#[tokio::test]
async fn a_stores_deadline_ends_a_statement_and_includes_the_wait_for_a_connection() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut db = app.db().await;
    let lock = lock_row(&mut db, &conversation).await;
    let unlimited = store(&app.url, 1);
    let store = unlimited.clone().with_deadline(STORE_DEADLINE);
    let id = ConversationId(conversation.id.parse().expect("an id is a UUID"));
    assert_unresponsive(store.delete_conversation(CALLER, id)).await;
    eventually("the statement has ended", async || {
        count_waiting_statements(&app).await == 0
    })
    .await;
    eventually("its connection is closed", async || {
        open_connections(&store, "writes") == 0
    })
    .await;
    let blocked_call = tokio::spawn(async move { unlimited.delete_conversation(CALLER, id).await });
    eventually("another call has the only connection", async || {
        count_waiting_statements(&app).await == 1
    })
    .await;
    assert_unresponsive(store.delete_conversation(CALLER, id)).await;
    lock.rollback().await.expect("rolls back");
    let deleted = blocked_call.await.expect("ends");
    deleted.expect("a store without a deadline waits for the lock");
}
