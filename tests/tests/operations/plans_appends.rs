//! An earlier append is found by its request id, also with a plan that was made on empty tables. Each
//! turn with a request id looks for one.

use anneal_testkit::TestApp;

use crate::plans::{Plan, TENANT, explain};

#[tokio::test]
async fn an_append_is_found_without_reading_the_other_messages_of_its_conversation() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off")
        .execute(&mut db)
        .await
        .expect("sets");
    let sql = include_str!("../../../store/sql/append_replay.sql");
    let conversation = "'00000000-0000-7000-8000-0000000000aa'";
    let arguments = [TENANT, conversation, "'r'"].map(String::from);
    let statement = ("append_replay", sql, arguments.as_slice());
    let plan = explain(&mut db, Plan::Generic, "costs off", statement).await;
    let lines: Vec<&str> = plan.lines().collect();
    let conditions = lines
        .windows(2)
        .filter(|pair| pair[0].contains(" on ai_message"))
        .map(|pair| pair[1].contains("Index Cond") && pair[1].contains(" AND "));
    assert_eq!(conditions.collect::<Vec<_>>(), [true; 2], "{plan}");
}
