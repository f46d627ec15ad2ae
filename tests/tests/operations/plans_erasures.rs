//! How much is read for an erasure depends on what it erases, not on the length of the conversation,
//! and not on what other tenants and users have. A begin and a dry run read no conversation of
//! others either.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    plans::TENANT,
    plans_changes::{count_rows_read, explain_with},
    plans_context::{LONG, PLAN_MODES, SHORT, conversation, fill},
};

/// Id of the tenant that has most conversations, as an SQL literal.
const OTHER_TENANT: &str = "'00000000-0000-7000-8000-000000000002'";
/// Conversations of the tenant that is erased, besides the short and the long one.
const CONVERSATIONS: i64 = 100;
/// Conversations of the user who is erased.
const OF_USER: i64 = 20;
/// Messages that are erased.
const ERASED: i64 = 10;
/// Edits of the short and of the long conversation.
const EDITS: i64 = 200;
/// A page of erasures.
const PAGE: i64 = 11;
/// Rows that a statement may read besides those that it is about: of other tables of the
/// conversation. The short conversation has 24 checkpoints, of which the planner may read all.
const OTHER_ROWS: i64 = 30;

/// Name and text of a statement, its arguments, and how many rows it may read.
type Statement = (&'static str, &'static str, String, i64);

macro_rules! statement {
    ($name:literal, $most:expr, $($arguments:tt)*) => {
        (
            $name,
            include_str!(concat!("../../../store/sql/", $name, ".sql")),
            format!($($arguments)*),
            $most,
        )
    };
}

/// The statements that begin, make and end the erasures of a tenant and of a user. Each may read
/// two more rows: the erasure itself, and the row that shows that there are no more. One step has
/// taken all conversations of the user but one, and goes on at the last that it has taken.
fn statements_of_steps() -> Vec<Statement> {
    let all = CONVERSATIONS + 2;
    let erasure = "'00000000-0000-7000-a000-000000000001'";
    let numbers = 20_000 - OF_USER + 2..=20_000;
    let last_taken = numbers.start() * 1_000_000;
    let taken: Vec<String> = numbers
        .map(|n| format!("00000000-0000-7000-9000-{n:012}"))
        .collect();
    let conversations = format!("{{{}}}", taken.join(","));
    vec![
        statement!("find_open_erasures", 18, "16"),
        statement!("lock_erasure", 2, "{TENANT}, {erasure}"),
        statement!("put_back_erasure", 4, "{TENANT}, {erasure}"),
        statement!(
            "record_erasure_step",
            2,
            "{TENANT}, {erasure}, 1, 1, '{{}}', '', 1, 1"
        ),
        statement!("end_erasure", 2, "{TENANT}, {erasure}, '{{}}'"),
        statement!("get_erasure", 2, "{TENANT}, {erasure}"),
        statement!("list_erasures", PAGE + 2, "{TENANT}, null, null, {PAGE}"),
        statement!(
            "list_erasures_of_user",
            PAGE + 2,
            "{TENANT}, '\\x01', null, null, {PAGE}"
        ),
        statement!("lock_conversation_to_erase", 3, "{TENANT}, '{{}}', null"),
        statement!(
            "lock_conversation_to_erase",
            3,
            "{TENANT}, '{conversations}', {last_taken}"
        ),
        statement!(
            "lock_conversation_to_erase_of_user",
            3,
            "{TENANT}, 'anna', '{{}}', null"
        ),
        statement!(
            "lock_conversation_to_erase_of_user",
            3,
            "{TENANT}, 'anna', '{conversations}', {last_taken}"
        ),
        statement!("has_conversations", 2, "{TENANT}"),
        statement!("has_conversations_of_user", 2, "{TENANT}, 'anna'"),
        statement!("has_conversations_of_user", 2, "{TENANT}, 'nobody'"),
        statement!("measure_conversations", all, "{TENANT}"),
        statement!("measure_conversations_of_user", OF_USER, "{TENANT}, 'anna'"),
    ]
}

/// The statements that erase the newest messages of a conversation with so many, or all of it.
fn statements_of_conversation(messages: i64) -> Vec<Statement> {
    let (first, last) = (messages - ERASED + 1, messages);
    let ids: Vec<String> = (first..=last).map(|id| id.to_string()).collect();
    let (ids, id) = (ids.join(","), conversation(messages));
    let bare_id = id.trim_matches('\'');
    vec![
        statement!(
            "erase_messages",
            3 * ERASED + OTHER_ROWS,
            "{TENANT}, {id}, '{{{ids}}}'"
        ),
        statement!(
            "blank_void_checkpoints",
            OTHER_ROWS,
            "{TENANT}, {id}, '{{{first}}}', '{{{last}}}'"
        ),
        statement!(
            "blank_append_digests",
            // Heads of appends are up to 100 messages before.
            2 * ERASED + 100 + OTHER_ROWS,
            "{TENANT}, {id}, '{{{first}}}', '{{{last}}}', 100, 10000"
        ),
        statement!(
            "blank_request_digests",
            // All requests and changes of the conversation.
            2 * EDITS + OTHER_ROWS,
            "{TENANT}, {id}, '{{{ids}}}', '{{}}'"
        ),
        statement!(
            "erase_job_errors",
            OTHER_ROWS,
            "{TENANT}, '{{1,2,3}}', {id}"
        ),
        statement!(
            "delete_jobs",
            OTHER_ROWS,
            "{TENANT}, '{{1,2,3}}', '{{{bare_id}}}'"
        ),
        statement!("delete_messages", messages + OTHER_ROWS, "{TENANT}, {id}"),
        statement!(
            "count_rows",
            // Checkpoints, prefixes, requests and changes of the conversation.
            2 * messages / 20 + 2 * EDITS + OTHER_ROWS,
            "{TENANT}, '{{{bare_id}}}'"
        ),
        statement!(
            "erase_prefixes",
            messages / 20 + OTHER_ROWS,
            "{TENANT}, {id}"
        ),
    ]
}

/// Gives almost all conversations to another tenant, some of the rest to a user, and stores 20,000
/// erasures and edits. Conversation n was last active n seconds after 1970.
async fn fill_in(db: &mut PgConnection) {
    let last_of_other = format!("'00000000-0000-7000-9000-{:012}'", 20_000 - CONVERSATIONS);
    let last_of_nobody = format!("'00000000-0000-7000-9000-{:012}'", 20_000 - OF_USER);
    let sql = format!(
        "insert into tenant (tenant_id, name) values ({OTHER_TENANT}, 'other');
         update ai_conversation set tenant_id = {OTHER_TENANT}
         where conversation_id between '00000000-0000-7000-9000-000000000000' and {last_of_other};
         update ai_conversation set listed_ts = to_timestamp(right(conversation_id::text, 12)::bigint), user_id = case
                when conversation_id > {last_of_nobody} then 'anna'
                else 'user ' || right(conversation_id::text, 3)
            end
         where conversation_id > '00000000-0000-7000-9000-000000000000';
         insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, requested_ts, ended_ts,
            subject_digest, ids_digest)
         select case when n % 2 = 0 then {TENANT}::uuid else {OTHER_TENANT} end,
            ('00000000-0000-7000-a000-' || lpad(n::text, 12, '0'))::uuid, 3, case when n > 100 then 1 else 0 end, '',
            'anyone', now() - n * interval '1 second', case when n > 100 then now() end,
            case when n % 100 = 0 then '\\x01'::bytea else '\\x02' end, ''
         from generate_series(2, 20000) as n;
         insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, user_id, ids_digest)
         values ({TENANT}, '00000000-0000-7000-a000-000000000001', 3, 0, '', 'anyone', 'anna', '');
         insert into ai_job (tenant_id, kind, conversation_id, last_error)
         select tenant_id, 1, conversation_id, 'failed' from ai_conversation;"
    );
    let edits = [SHORT, LONG].map(|messages| {
        let id = conversation(messages);
        format!(
            "insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, version,
                void_checkpoints)
             select {TENANT}, {id}, n, 3, array[n], array[n], 2, 0 from generate_series(1, {EDITS}) as n;
             insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest, answer)
             select {TENANT}, {id}, 'edit_message', n::text, '\\x01', n from generate_series(1, {EDITS}) as n;"
        )
    });
    let sql = format!("{sql}{}", edits.concat());
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut *db)
        .await
        .expect("fills in");
    analyze(db).await;
}

/// Makes statistics, and sets which plans are made.
async fn analyze(db: &mut PgConnection) {
    sqlx::raw_sql("vacuum (analyze)")
        .execute(&mut *db)
        .await
        .expect("analyzes");
    // As sessions of servers and workers have them. Some tables are empty here, and would be
    // scanned.
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off")
        .execute(db)
        .await
        .expect("sets");
}

/// Explains the statements, and asserts that they read no more rows than they may.
async fn assert_few_rows(db: &mut PgConnection, statements: &[Statement]) {
    for mode in PLAN_MODES {
        for (name, sql, arguments, most) in statements {
            let plan = explain_with(db, mode, (*name, *sql), arguments).await;
            let rows = count_rows_read(name, &plan);
            assert!(
                rows <= *most,
                "{mode}: {name} reads {rows} rows, not at most {most}:\n{plan:#}"
            );
        }
    }
}

#[tokio::test]
async fn a_step_reads_the_conversations_of_its_tenant_or_user_and_none_of_others() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in(&mut db).await;
    assert_few_rows(&mut db, &statements_of_steps()).await;
}

#[tokio::test]
async fn a_user_of_whom_the_statistics_know_nothing_is_found_by_index() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    // All conversations have the same user, none. Almost all are like that where few callers name
    // one: then no row of the sample has another.
    analyze(&mut db).await;
    let two_of_anna = "update ai_conversation
        set user_id = 'anna', listed_ts = to_timestamp(right(conversation_id::text, 12)::bigint)
        where conversation_id in ('00000000-0000-7000-9000-000000000001', '00000000-0000-7000-9000-000000000002')";
    sqlx::raw_sql(two_of_anna)
        .execute(&mut db)
        .await
        .expect("updates");
    let newest = "00000000-0000-7000-9000-000000000002";
    let statements = [
        statement!(
            "lock_conversation_to_erase_of_user",
            3,
            "{TENANT}, 'anna', '{{}}', null"
        ),
        statement!(
            "lock_conversation_to_erase_of_user",
            3,
            "{TENANT}, 'anna', '{{{newest}}}', 2000000"
        ),
        statement!("has_conversations_of_user", 2, "{TENANT}, 'anna'"),
        statement!("has_conversations_of_user", 2, "{TENANT}, 'nobody'"),
        statement!("measure_conversations_of_user", 2, "{TENANT}, 'anna'"),
    ];
    assert_few_rows(&mut db, &statements).await;
}

#[tokio::test]
async fn an_erasure_of_messages_reads_them_and_what_was_made_of_them() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in(&mut db).await;
    for messages in [SHORT, LONG] {
        assert_few_rows(&mut db, &statements_of_conversation(messages)).await;
    }
}

#[tokio::test]
async fn edits_of_erased_messages_are_found_by_hash() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in(&mut db).await;
    let statements = statements_of_conversation(SHORT);
    let statement = statements
        .iter()
        .find(|(name, ..)| *name == "blank_request_digests");
    let (name, sql, arguments, _) = statement.expect("it is one of them");
    for mode in PLAN_MODES {
        let plan = explain_with(&mut db, mode, (*name, *sql), arguments).await;
        let text = plan.to_string();
        // Requests by the changes, and changes by the messages: no edit is compared with each
        // message.
        assert!(
            text.matches("hashed SubPlan").count() >= 2 && !text.contains("Nested Loop"),
            "{mode}:\n{plan:#}"
        );
    }
}
