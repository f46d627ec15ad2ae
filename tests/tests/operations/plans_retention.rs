//! A step of retention reads a page of conversations, and the rows of these by key, whatever the
//! number of conversations. What it deletes it reads twice: to find it, and to delete it.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    plans::TENANT,
    plans_changes::{count_rows_read, explain_with},
    plans_context::{PLAN_MODES, fill},
};

/// Conversations of a page.
const PAGE: i64 = 200;
/// Conversations whose rows a statement gets.
const WALKED: i64 = 50;
/// Rows of each conversation in each table.
const ROWS: i64 = 3;

/// Name and text of a statement, its arguments after the tenant, and how many rows it may read.
type Case = (&'static str, &'static str, String, i64);

macro_rules! case {
    ($name:literal, $most:expr, $($arguments:tt)*) => {
        (
            $name,
            include_str!(concat!("../../../store/sql/", $name, ".sql")),
            format!($($arguments)*),
            $most,
        )
    };
}

fn cases() -> Vec<Case> {
    // The conversations are ordered by their numbers.
    let id = |n: i64| format!("00000000-0000-7000-9000-{n:012}");
    let walked: Vec<String> = (1..=WALKED).map(id).collect();
    let walked = format!("'{{{}}}'", walked.join(","));
    // In the middle of the conversations.
    let position = format!(
        "(extract(epoch from now() - interval '55 days') * 1000000)::bigint, '{}'",
        id(7)
    );
    // A page is sorted by id within one time, in groups of some rows.
    let page = PAGE + 64;
    let rows = WALKED * ROWS;
    vec![
        case!(
            "find_idle_conversations",
            page,
            "30, '{{}}', '{{}}', 30, null, null, {PAGE}"
        ),
        case!(
            "find_idle_conversations",
            page,
            "30, '{{lab}}', '{{7}}', 7, {position}, {PAGE}"
        ),
        case!(
            "lock_idle_conversation",
            1,
            "'{}', 30, '{{lab}}', '{{7}}'",
            id(1)
        ),
        case!("walk_conversations", page, "null, null, {PAGE}"),
        case!("walk_conversations", page, "{position}, {PAGE}"),
        case!(
            "find_old_versions",
            page + PAGE * ROWS,
            "30, '{{lab}}', '{{7}}', {position}, {PAGE}, null"
        ),
        case!(
            "find_old_versions",
            page + PAGE,
            "30, '{{lab}}', '{{7}}', {position}, {PAGE}, 1"
        ),
        case!(
            "erase_old_versions",
            2 * ROWS,
            "'{}', 30, 1000, 1000000",
            id(1)
        ),
        case!(
            "trim_context_prefixes",
            // The newest version, and two that go.
            WALKED + 2 * (rows - WALKED),
            "{walked}, 1, 1000"
        ),
        case!("trim_model_calls", 2 * rows, "{walked}, 30, 1000"),
        case!("trim_requests", 2 * rows, "{walked}, 30, 1000"),
        case!("trim_dead_jobs", 2 * rows, "{walked}, 30, 1000"),
        case!(
            "count_trimmed_rows",
            WALKED + 4 * rows,
            "{walked}, 1, 30, 30, 30"
        ),
    ]
}

/// Makes 20,000 conversations idle, used one after the other, with [`ROWS`] old rows of each in
/// each table.
async fn fill_in_old_rows(db: &mut PgConnection) {
    let each = format!(
        "from ai_conversation as c cross join generate_series(1, {ROWS}) as n
         where c.conversation_id::text like '00000000-0000-7000-9000-%'"
    );
    let sql = format!(
        "update ai_conversation as c
         set last_activity_ts = now() - interval '60 days' + o.n * interval '1 minute',
            listed_ts = now() - interval '60 days' + o.n * interval '1 minute'
         from (select conversation_id, row_number() over (order by conversation_id) as n from ai_conversation) as o
         where o.conversation_id = c.conversation_id and c.conversation_id::text like '00000000-0000-7000-9000-%';
         insert into ai_message_version (tenant_id, conversation_id, message_id, version, change_id, token_estimate,
            text_bytes, content_bytes, content, content_digest, created_ts, replaced_ts)
         select {TENANT}, c.conversation_id, n, 1, 1, 1, 1, 2, '[]', '', c.listed_ts, c.listed_ts {each};
         delete from ai_context_prefix;
         insert into ai_context_prefix (tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id,
            system_prompt_digest, swapped_message_id, swapped_message_ids, cut, at_message_id, reason,
            broken_message_id, rewritten_tokens, saved_tokens)
         select {TENANT}, c.conversation_id, n, '\\x00', 1, '\\x00', 0, '{{}}', false, 1, 2, 1, 1, 1 {each};
         insert into ai_model_call (tenant_id, conversation_id, request_id, request_digest, model, context_tokens,
            input_tokens, cached_tokens, written_tokens, output_tokens, cache_state, created_ts)
         select {TENANT}, c.conversation_id, 'r' || n, '', 'm', 1, 1, 1, 1, 1, 1, c.listed_ts {each};
         insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest, created_ts)
         select {TENANT}, c.conversation_id, 'insert_separator', 'r' || n, '', c.listed_ts {each};
         insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts, died_ts)
         select {TENANT}, n, c.conversation_id, 1, 1, c.listed_ts, c.listed_ts {each};"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut *db)
        .await
        .expect("fills in old rows");
    sqlx::raw_sql("vacuum (analyze)")
        .execute(db)
        .await
        .expect("analyzes");
}

#[tokio::test]
async fn a_step_of_retention_reads_its_page_whatever_the_number_of_conversations() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in_old_rows(&mut db).await;
    for mode in PLAN_MODES {
        for (name, sql, arguments, most) in cases() {
            let arguments = format!("{TENANT}, {arguments}");
            let plan = explain_with(&mut db, mode, (name, sql), &arguments).await;
            let rows = count_rows_read(name, &plan);
            assert!(
                rows > 0 && rows <= most,
                "{mode}: {name} reads {rows} rows instead of {most}:\n{plan:#}"
            );
        }
    }
}
