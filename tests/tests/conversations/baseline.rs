//! What the benchmark holds appends against: the statement that pgbench runs stores what an append through the door stores.

use anneal_tests::{House, pb, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

const CONVERSATION: &str = include_str!("../../../bench/sql/pgbench_talks.sql");
const TRANSACTION: &str = include_str!("../../../bench/sql/append.pgbench.sql");
/// The one conversation of pgbench's.
const THEIRS: &str = "00000000-0000-7000-8000-000000000000";
/// Where an append leaves rows, and the columns that differ from one conversation, request and moment to the next.
const ROWS: [(&str, &[&str]); 3] = [
    ("ai_conversation", &["conversation_id", "created_ts", "last_activity_ts", "listed_ts"]),
    ("ai_message", &["conversation_id", "created_ts", "request_id"]),
    ("ai_job", &["conversation_id", "due_ts", "dirty_ts"]),
];

/// Makes pgbench's conversation, and appends to it this many times as pgbench does.
async fn by_pgbench(db: &mut PgConnection, times: usize) {
    let made = CONVERSATION.replace(":talks", "1");
    sqlx::raw_sql(sqlx::AssertSqlSafe(made)).execute(&mut *db).await.expect("makes the conversation");
    let statement: Vec<&str> = TRANSACTION.lines().filter(|line| !line.starts_with('\\')).collect();
    let statement = statement.join("\n").replace(":talk::", "0::");
    for _ in 0..times {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone())).execute(&mut *db).await.expect("appends");
    }
}

/// Makes a conversation as the benchmark does, and appends to it this many times; returns its id.
async fn through_the_door(house: &House, times: usize) -> String {
    let policy = Some(pb::Policy { max_message_count: Some(0), ..Default::default() });
    let ask = pb::CreateConversationRequest { policy, ..Default::default() };
    let made = ConversationServiceClient::new(house.channel()).create_conversation(ask).await.expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    for _ in 0..times {
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            request_id: Uuid::new_v4().to_string(),
            messages: vec![user(&"The quick brown fox jumps over the lazy dog. ".repeat(9)[..400])],
            ..Default::default()
        };
        MessageServiceClient::new(house.channel()).append_messages(ask).await.expect("appends");
    }
    conversation_id
}

/// The rows of a conversation in a table, without these columns, and the bytes of each.
async fn rows(db: &mut PgConnection, table: &str, without: &[&str], conversation_id: &str) -> Vec<(Value, i32)> {
    let ask = format!(
        "select to_jsonb(r) - $1::text[], pg_column_size(r.*) from {table} as r where conversation_id = $2::uuid
         order by to_jsonb(r) -> 'message_id'"
    );
    let rows = sqlx::query_as(sqlx::AssertSqlSafe(ask)).bind(without).bind(conversation_id);
    rows.fetch_all(db).await.expect("answers")
}

#[tokio::test]
async fn what_pgbench_appends_is_what_an_append_through_the_door_stores() {
    let house = House::start().await;
    let mut db = PgConnection::connect(&house.url).await.expect("connects");
    let ours = through_the_door(&house, 3).await;
    by_pgbench(&mut db, 3).await;
    for (table, without) in ROWS {
        let (ours, theirs) = (rows(&mut db, table, without, &ours).await, rows(&mut db, table, without, THEIRS).await);
        assert_eq!(ours.len(), if table == "ai_message" { 3 } else { 1 }, "rows of {table}");
        assert_eq!(ours, theirs, "in {table}");
    }
    let lengths = "select distinct length(request_id) from ai_message";
    let lengths: Vec<i32> = sqlx::query_scalar(lengths).fetch_all(&mut db).await.expect("answers");
    assert_eq!(lengths, [36], "request ids are alike");
}
