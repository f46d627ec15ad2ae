//! Calls whose time is up: their callers are told, and PostgreSQL does not go on for nobody.

use std::time::{Duration, Instant};

use anneal_tests::{House, Talk, assert_refused, eventually, pb};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use tonic::{Code, Request};

/// Longer than it takes to notice that somebody has gone, and far shorter than a statement may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a caller gets who does not say how long.
const DEFAULT: Duration = Duration::from_secs(10);

/// Holds a conversation's row: whoever wants to change it waits.
async fn hold<'a>(db: &'a mut PgConnection, talk: &Talk<'_>) -> Transaction<'a, Postgres> {
    let mut held = db.begin().await.expect("begins");
    let row = "select from ai_conversation where conversation_id = $1::text::uuid for update";
    sqlx::query(row).bind(&talk.id).execute(&mut *held).await.expect("holds the row");
    held
}

/// How many statements of the service wait for a lock.
async fn waiting(house: &House) -> i64 {
    let waiting = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'anneal' and wait_event_type = 'Lock'";
    sqlx::query_scalar(waiting).fetch_one(&mut house.db().await).await.expect("looks")
}

fn deletion(talk: &Talk<'_>) -> pb::DeleteConversationRequest {
    pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() }
}

#[tokio::test]
async fn a_statement_ends_soon_after_the_call_whose_time_is_up() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let mut db = house.db().await;
    let held = hold(&mut db, &talk).await;
    let mut ask = Request::new(deletion(&talk));
    ask.set_timeout(Duration::from_secs(15));
    let mut conversations = house.conversations();
    let call = tokio::spawn(async move { conversations.delete_conversation(ask).await });
    eventually("its statement waits for the row", async || waiting(&house).await == 1).await;
    call.await.expect("ends").expect_err("its time is up");
    let ends = tokio::time::timeout(PATIENCE, eventually("it has ended", async || waiting(&house).await == 0)).await;
    assert!(ends.is_ok(), "PostgreSQL still waits for a row that nobody wants any more");
    held.rollback().await.expect("lets go");
    assert_eq!(talk.conversation().await.conversation_id, talk.id, "nothing came of it");
}

#[tokio::test]
async fn who_does_not_say_how_long_is_answered_after_ten_seconds() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let mut db = house.db().await;
    let held = hold(&mut db, &talk).await;
    let began = Instant::now();
    let answer =
        tokio::time::timeout(DEFAULT + PATIENCE, house.conversations().delete_conversation(deletion(&talk))).await;
    assert_refused(answer.expect("is answered"), Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "");
    assert!(began.elapsed() >= DEFAULT, "it was given {:?}", began.elapsed());
    held.rollback().await.expect("lets go");
}
