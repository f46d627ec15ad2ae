//! The baseline of the append benchmark: the SQL that pgbench runs stores the same rows as an
//! append over gRPC.

use anneal_testkit::{TestApp, pb, user};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

/// The SQL that creates the conversations.
const CREATE_CONVERSATIONS: &str = include_str!("../../../../dev/bench/sql/pgbench_talks.sql");
/// The SQL of one append.
const APPEND: &str = include_str!("../../../../dev/bench/sql/append.pgbench.sql");
/// The conversation that pgbench appends to.
const PGBENCH_CONVERSATION: &str = "00000000-0000-7000-8000-000000000000";
/// The tables to which an append writes. With each, the columns that are not compared, because they
/// differ by conversation, request or time.
const COMPARED_TABLES: [(&str, &[&str]); 3] = [
    (
        "ai_conversation",
        &[
            "conversation_id",
            "created_ts",
            "last_activity_ts",
            "listed_ts",
        ],
    ),
    (
        "ai_message",
        &["conversation_id", "created_ts", "request_id"],
    ),
    ("ai_job", &["conversation_id", "due_ts", "dirty_ts"]),
];

/// Creates pgbench's conversation and appends to it `times` times with pgbench's SQL.
async fn append_with_pgbench(db: &mut PgConnection, times: usize) {
    // pgbench's variables: `:talks` is how many conversations there are; `:talk` is which one an
    // append goes to, from 0.
    let create = CREATE_CONVERSATIONS.replace(":talks", "1");
    sqlx::raw_sql(sqlx::AssertSqlSafe(create))
        .execute(&mut *db)
        .await
        .expect("creates the conversation");
    let statement: Vec<&str> = APPEND
        .lines()
        .filter(|line| !line.starts_with('\\')) // pgbench's `\set`
        .collect();
    let statement = statement.join("\n").replace(":talk::", "0::");
    for _ in 0..times {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone()))
            .execute(&mut *db)
            .await
            .expect("appends");
    }
}

/// Creates a conversation as the benchmark does and appends to it `times` times. Returns its id.
async fn append_over_grpc(app: &TestApp, times: usize) -> String {
    let policy = Some(pb::Policy {
        max_message_count: Some(0),
        ..Default::default()
    });
    let ask = pb::CreateConversationRequest {
        policy,
        ..Default::default()
    };
    let created = ConversationServiceClient::new(app.channel())
        .create_conversation(ask)
        .await
        .expect("creates");
    let conversation_id = created.into_inner().conversation_id;
    for _ in 0..times {
        // The text of 400 bytes is the same as in pgbench's SQL.
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            request_id: Uuid::new_v4().to_string(),
            messages: vec![user(
                &"The quick brown fox jumps over the lazy dog. ".repeat(9)[..400],
            )],
            ..Default::default()
        };
        MessageServiceClient::new(app.channel())
            .append_messages(ask)
            .await
            .expect("appends");
    }
    conversation_id
}

/// Reads a conversation's rows in a table: each as JSON without the columns `left_out`, and its
/// size in bytes.
async fn read_rows(
    db: &mut PgConnection,
    table: &str,
    left_out: &[&str],
    conversation_id: &str,
) -> Vec<(Value, i32)> {
    let sql = format!(
        "select to_jsonb(r) - $1::text[], pg_column_size(r.*) from {table} as r where conversation_id = $2::uuid
         order by to_jsonb(r) -> 'message_id'"
    );
    let rows = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(left_out)
        .bind(conversation_id);
    rows.fetch_all(db).await.expect("answers")
}

#[tokio::test]
async fn the_pgbench_append_stores_the_same_rows_as_an_append_over_grpc() {
    let app = TestApp::start().await;
    let mut db = PgConnection::connect(&app.url).await.expect("connects");
    let grpc_conversation = append_over_grpc(&app, 3).await;
    append_with_pgbench(&mut db, 3).await;
    for (table, left_out) in COMPARED_TABLES {
        let (grpc_rows, pgbench_rows) = (
            read_rows(&mut db, table, left_out, &grpc_conversation).await,
            read_rows(&mut db, table, left_out, PGBENCH_CONVERSATION).await,
        );
        assert_eq!(
            grpc_rows.len(),
            if table == "ai_message" { 3 } else { 1 },
            "rows of {table}"
        );
        assert_eq!(grpc_rows, pgbench_rows, "in {table}");
    }
    let lengths = "select distinct length(request_id) from ai_message";
    let lengths: Vec<i32> = sqlx::query_scalar(lengths)
        .fetch_all(&mut db)
        .await
        .expect("answers");
    assert_eq!(lengths, [36], "all request ids have the same length");
}
