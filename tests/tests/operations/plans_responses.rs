//! How much is read to store, find or delete a response does not depend on the number of responses.
//! To erase messages, only the responses of their conversation are read.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    plans::TENANT,
    plans_changes::{Statement, count_rows_read, explain_analyze, explain_with, statement},
    plans_context::{LONG, PLAN_MODES, SHORT, conversation, fill},
};

/// Responses of each of two conversations.
const RESPONSES: i64 = 1_000;
/// Most rows that a statement reads of one response: it is found, deleted, and one other is looked
/// for. Of its conversation one row.
const ROWS: i64 = 4;

/// The id of the response with this number, as an SQL literal.
fn response(number: i64) -> String {
    format!("'00000000-0000-7000-a000-{number:012}'")
}

/// The number of the first response of a conversation with so many messages.
const fn first_response(messages: i64) -> i64 {
    if messages == SHORT { 1 } else { RESPONSES + 1 }
}

/// The statements on a conversation with so many messages, and how many rows each may read.
fn statements(messages: i64) -> Vec<(Statement, i64)> {
    let one = response(first_response(messages));
    vec![
        (
            statement!(
                "put_response",
                ", '00000000-0000-7000-b000-000000000001', 'r', null, 0, true, false, '{{}}', ''"
            ),
            ROWS,
        ),
        (
            statement!(
                "put_response",
                ", {one}, 'r', null, 0, true, false, '{{}}', ''"
            ),
            ROWS,
        ),
        (statement!("delete_response", ", {one}"), ROWS),
        (
            statement!("erase_responses", ", '{{1,5}}', '{{2,5}}'"),
            RESPONSES,
        ),
    ]
}

/// Stores [`RESPONSES`] of the short and of the long conversation, and one of each other.
async fn fill_in_responses(db: &mut PgConnection) {
    let (short, long) = (conversation(SHORT), conversation(LONG));
    let columns = "insert into ai_response (tenant_id, response_id, conversation_id, request_id, after_message_id,
        question_last_id, answer_message_id, is_chain, background, request, request_digest)";
    let sql = format!(
        "{columns}
         select {TENANT}, ('00000000-0000-7000-a000-' || lpad(n::text, 12, '0'))::uuid,
            case when n <= {RESPONSES} then {short} else {long} end::uuid, 'r', n, n + 1, n + 2, true, false, '{{}}', ''
         from generate_series(1, 2 * {RESPONSES}) as n;
         {columns}
         select {TENANT}, gen_random_uuid(), conversation_id, 'r', 0, 1, 2, true, false, '{{}}', ''
         from ai_conversation where conversation_id not in ({short}, {long});
         vacuum (analyze) ai_response;"
    );
    for statement in sql.split_inclusive(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut *db)
            .await
            .expect("fills in responses");
    }
}

#[tokio::test]
async fn a_response_is_found_by_its_id_and_those_of_a_conversation_by_the_conversation() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in_responses(&mut db).await;
    for mode in PLAN_MODES {
        for messages in [SHORT, LONG] {
            for (statement, most) in statements(messages) {
                let plan = explain_analyze(&mut db, mode, messages, &statement).await;
                let rows = count_rows_read(statement.0, &plan);
                assert!(
                    rows >= 1 && rows <= most,
                    "{mode}: {} reads {rows} rows of a conversation with {messages}:\n{plan:#}",
                    statement.0
                );
            }
        }
        let (name, sql, _) = statement!("find_response");
        let arguments = format!("{TENANT}, {}", response(7));
        let plan = explain_with(&mut db, mode, (name, sql), &arguments).await;
        assert_eq!(count_rows_read(name, &plan), 1, "{mode}:\n{plan:#}");
    }
}
