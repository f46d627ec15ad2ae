//! How much is read for a fork depends on the messages that it takes over, and for a list of forks
//! on the page, not on the length of the conversation or the number of its forks.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    plans::TENANT,
    plans_changes::{Statement, count_rows_read, explain_analyze, statement},
    plans_context::{LONG, PLAN_MODES, SHORT, conversation, fill},
};

/// Messages that a fork takes over.
const COPIED: i64 = 10;
/// Forks of a page, and one more that shows whether another page follows.
const PAGE: i64 = 11;
/// Forks of each conversation.
const FORKS: i64 = 1_000;

/// The statements, and how many rows each may read.
fn statements() -> Vec<(Statement, i64)> {
    let fork = "'00000000-0000-7000-a000-000000000001'";
    vec![
        (
            statement!("fork_conversation", ", {COPIED}, {fork}, null, null, null"),
            // Besides the messages: the conversation, and its newest version of a beginning.
            COPIED + 2,
        ),
        // Each fork is read from two tables.
        (statement!("list_forks", ", null, null, {PAGE}"), 2 * PAGE),
        (
            statement!("list_forks", ", 1767225600000000, {fork}, {PAGE}"),
            2 * PAGE,
        ),
    ]
}

/// Makes each of 20,000 conversations a fork: [`FORKS`] of them of the short conversation, as many
/// of the long one, the others of themselves.
async fn fill_in_forks(db: &mut PgConnection) {
    let (short, long) = (conversation(SHORT), conversation(LONG));
    let sql = format!(
        "insert into ai_fork (tenant_id, conversation_id, source_id, created_ts)
         select {TENANT}, c.conversation_id,
            case when c.n <= {FORKS} then {short} when c.n <= 2 * {FORKS} then {long} else c.conversation_id::text end::uuid,
            timestamptz '2026-01-01T00:00:00Z' + (c.n % {FORKS} - 500) * interval '1 second'
         from (select conversation_id, row_number() over (order by conversation_id desc) as n from ai_conversation) as c;
         vacuum (analyze) ai_fork;"
    );
    for statement in sql.split_inclusive(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut *db)
            .await
            .expect("fills in forks");
    }
}

#[tokio::test]
async fn a_fork_reads_what_it_takes_over_and_a_list_of_forks_its_page() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in_forks(&mut db).await;
    for mode in PLAN_MODES {
        for messages in [SHORT, LONG] {
            for (statement, most) in statements() {
                let plan = explain_analyze(&mut db, mode, messages, &statement).await;
                let rows = count_rows_read(statement.0, &plan);
                assert!(
                    rows >= PAGE && rows <= most,
                    "{mode}: {} reads {rows} rows of a conversation with {messages}:\n{plan:#}",
                    statement.0
                );
            }
        }
    }
}
