//! How much is read to withdraw, restore or edit messages, and to list and read what no longer
//! stands, depends on their number, not on the length of the conversation.

use anneal_testkit::TestApp;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::{
    plans::{AS_OWNER, AS_SERVERS, TENANT},
    plans_context::{LONG, PLAN_MODES, SHORT, conversation, fill, scans},
};

/// How many messages are withdrawn, and how many are restored.
const CHANGED: i64 = 10;
/// Most rows that a statement reads for each changed message: the message is read to be moved and
/// again to be updated, and its version once.
const ROWS_PER_MESSAGE: i64 = 3;
/// Most rows that a statement reads besides: messages around the changed ones, rows of the
/// conversation. The short conversation has 24 checkpoints, of which the planner may read all.
const OTHER_ROWS: i64 = 30;

/// A statement of a change: name, text, and arguments after tenant and conversation.
pub(crate) type Statement = (&'static str, &'static str, String);

/// Name and text of a statement, and its arguments.
macro_rules! statement {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../store/sql/", $name, ".sql")),
            String::new(),
        )
    };
    ($name:literal, $($arguments:tt)*) => {
        (
            $name,
            include_str!(concat!("../../../store/sql/", $name, ".sql")),
            format!($($arguments)*),
        )
    };
}
pub(crate) use statement;

/// The statements that withdraw the newest messages of a conversation with so many, restore the
/// withdrawn ones, edit the newest one, and read a withdrawn one, the answer to an early question
/// and the newest turn.
fn statements(messages: i64) -> Vec<Statement> {
    let (first, last) = (messages - CHANGED + 1, messages);
    let (first_withdrawn, last_withdrawn) = withdrawn(messages);
    let array_of = |first: i64, last: i64| {
        let ids: Vec<String> = (first..=last).map(|id| id.to_string()).collect();
        format!("'{{{}}}'", ids.join(","))
    };
    let newest = array_of(first, last);
    let withdrawn = array_of(first_withdrawn, last_withdrawn);
    vec![
        statement!(
            "select_change_targets",
            ", '{{{first}}}', '{{{last}}}', false, 10001"
        ),
        statement!(
            "select_change_targets",
            ", '{{{first_withdrawn}}}', '{{{last_withdrawn}}}', true, 10001"
        ),
        statement!(
            "tool_outlines",
            ", '{{{first}}}', '{{{}}}', false",
            last + 1_000
        ),
        statement!(
            "tool_outlines",
            ", '{{{first_withdrawn}}}', '{{{last_withdrawn}}}', true"
        ),
        statement!("withdraw_messages", ", {newest}, 7"),
        statement!(
            "restore_messages",
            ", {withdrawn}, {messages}, '{{}}', '{{}}'"
        ),
        statement!("uncounted_versions", ", {withdrawn}, 1048576, 0, 4194304"),
        statement!("renumber_turns", ", {first}, {last}"),
        statement!("renumber_turns", ", {first_withdrawn}, {last_withdrawn}"),
        statement!("void_checkpoints", ", '{{{first}}}', '{{{last}}}', 7"),
        statement!("void_checkpoints", ", '{{{}}}', '{{{last}}}', 7", last - 60),
        statement!("change_conversation", ", -1000, 10, null"),
        statement!("revoke_job_leases", ", '{{1,2,3}}'"),
        statement!("standing_title_sources", ", 0, 1, 8192"),
        statement!("message_extent"),
        statement!("store_version", ", {last}, 7"),
        statement!(
            "edit_message",
            ", {last}, '[]', '', 2, 1, null, null, false"
        ),
        statement!("get_message_version", ", {first_withdrawn}, 1, 1048576"),
        statement!("get_message_version", ", {last}, 1, 1048576"),
        statement!("list_message_versions", ", {first_withdrawn}, null, 50"),
        statement!(
            "list_messages_with_withdrawn",
            ", {}, {CHANGED}, 4194304, true, 1048576",
            first_withdrawn - 1
        ),
        statement!("standing_answer", ", 101, 10001, 128"),
        statement!("newest_turn_outlines", ", {CHANGED}"),
    ]
}

/// The first and the last of the messages that are withdrawn in a conversation with so many.
const fn withdrawn(messages: i64) -> (i64, i64) {
    (messages - 3 * CHANGED + 1, messages - 2 * CHANGED)
}

/// Withdraws messages of the short and of the long conversation. 20,000 other rows make every table
/// too large for a sequential scan.
async fn fill_in_withdrawn(db: &mut PgConnection) {
    let others = format!(
        "insert into ai_message_version (tenant_id, conversation_id, message_id, version, change_id, token_estimate,
            text_bytes, content_bytes, content, content_digest, created_ts)
         select {TENANT}, conversation_id, 1, 1, 1, 1, 1, 2, '[]', '', now() from ai_conversation;
         insert into ai_job (tenant_id, kind, conversation_id)
         select {TENANT}, 1, conversation_id from ai_conversation;
         insert into ai_alternative (tenant_id, conversation_id, question_id, number, question_version, first_ids,
            last_ids, change_id)
         select {TENANT}, conversation_id, 1, 1, 1, '{{2}}', '{{2}}', 1 from ai_conversation;"
    );
    sqlx::raw_sql(AssertSqlSafe(others))
        .execute(&mut *db)
        .await
        .expect("fills in others");
    for messages in [SHORT, LONG] {
        let (id, (first, last)) = (conversation(messages), withdrawn(messages));
        let sql = format!(
            "insert into ai_message_version (tenant_id, conversation_id, message_id, version, change_id, token_estimate,
                text_bytes, content_bytes, content, content_digest, created_ts)
             select tenant_id, conversation_id, message_id, 1, 1, token_estimate, text_bytes, 430, content,
                content_digest, created_ts
             from ai_message where conversation_id = {id} and message_id between {first} and {last};
             update ai_message set content = '[]', withdrawn_ts = now()
             where conversation_id = {id} and message_id between {first} and {last};
             update ai_conversation set withdrawn_messages = {CHANGED} where conversation_id = {id};"
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *db)
            .await
            .expect("withdraws");
    }
    sqlx::raw_sql("vacuum (analyze)")
        .execute(db)
        .await
        .expect("analyzes");
}

/// Runs a statement, and rolls it back. Returns the topmost node of its plan with actual numbers.
pub(crate) async fn explain_analyze(
    db: &mut PgConnection,
    mode: &str,
    messages: i64,
    (name, sql, arguments): &Statement,
) -> Value {
    let id = conversation(messages);
    explain_with(
        db,
        mode,
        (*name, *sql),
        &format!("{TENANT}, {id}{arguments}"),
    )
    .await
}

/// [`explain_analyze`] of a statement with all its arguments.
pub(crate) async fn explain_with(
    db: &mut PgConnection,
    mode: &str,
    (name, sql): (&str, &str),
    arguments: &str,
) -> Value {
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; set plan_cache_mode = {mode}; begin; prepare asked as {sql}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .unwrap_or_else(|error| panic!("{name} is not prepared: {error}"));
    let explain = format!("explain (analyze, timing off, format json) execute asked ({arguments})");
    let row = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(&mut *db)
        .await
        .unwrap_or_else(|error| panic!("{name} is not explained: {error}"));
    let end = format!("rollback; {AS_OWNER}");
    sqlx::raw_sql(AssertSqlSafe(end))
        .execute(db)
        .await
        .expect("rolls back");
    let plans: Value = row.get(0);
    plans[0]["Plan"].clone()
}

/// Asserts that every table is read by an index, or by the places of rows that were found by one.
/// Returns the number of rows that were read, those
/// included that a filter removed.
pub(crate) fn count_rows_read(name: &str, plan: &Value) -> i64 {
    let mut rows = 0.0;
    let read = scans(plan)
        .into_iter()
        .filter(|node| node["Node Type"] != "ModifyTable");
    for scan in read {
        let kind = scan["Node Type"].as_str().unwrap_or_default();
        assert!(
            kind.contains("Index") || ["Bitmap Heap Scan", "Tid Scan"].contains(&kind),
            "{name}: {kind} of {}:\n{plan:#}",
            scan["Relation Name"]
        );
        let number = |name: &str| scan.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        let visited = number("Actual Rows")
            + number("Rows Removed by Filter")
            + number("Rows Removed by Index Recheck");
        rows += visited * number("Actual Loops");
    }
    rows.round() as i64
}

#[tokio::test]
async fn a_change_reads_the_changed_messages_whatever_the_length_of_the_conversation() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in_withdrawn(&mut db).await;
    for mode in PLAN_MODES {
        for messages in [SHORT, LONG] {
            for statement in statements(messages) {
                let plan = explain_analyze(&mut db, mode, messages, &statement).await;
                let rows = count_rows_read(statement.0, &plan);
                assert!(
                    rows <= ROWS_PER_MESSAGE * CHANGED + OTHER_ROWS,
                    "{mode}: {} reads {rows} rows of a conversation with {messages}:\n{plan:#}",
                    statement.0
                );
            }
        }
    }
}
