//! How much is read for a context, or for a page of messages, depends on the size of the answer,
//! not on the length of the conversation. The original of a message that is sent as its summary is
//! not read.

use anneal_testkit::{TestApp, eventually, pb, user};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use uuid::Uuid;

use crate::plans::{AS_OWNER, AS_SERVERS, TENANT};

/// Values of PostgreSQL's `plan_cache_mode`.
pub(crate) const PLAN_MODES: [&str; 2] = ["force_generic_plan", "force_custom_plan"];
/// Messages after the newest checkpoint.
const TAIL: i64 = 50;
/// Messages between two checkpoints.
const STEP: i64 = 40;
/// Messages of the short conversation.
pub(crate) const SHORT: i64 = 1_000;
/// Messages of the long conversation.
pub(crate) const LONG: i64 = 100_000;
/// Messages of a default page, and one more that shows whether another page follows.
const PAGE: i64 = 51;
/// The last three arguments of [`CONTEXT_MATERIAL`]: CONTEXT_CONTENT_BYTES, and no message is left
/// out.
const NO_LIMITS: &str = "134217728, 0, 0";
const CONTEXT_MATERIAL: &str = include_str!("../../../store/sql/context_material.sql");
const LIST_MESSAGES: &str = include_str!("../../../store/sql/list_messages.sql");
const LIST_MESSAGES_NEWEST_FIRST: &str =
    include_str!("../../../store/sql/list_messages_newest_first.sql");

/// Id of the conversation with this number of messages, as an SQL literal.
pub(crate) fn conversation(messages: i64) -> String {
    format!("'00000000-0000-7000-8000-{messages:012}'")
}

/// Stores a short and a long conversation, each with a checkpoint and a prefix version every
/// [`STEP`] messages up to the tail. 20,000 other rows make every table too large for a sequential
/// scan.
pub(crate) async fn fill(db: &mut PgConnection) {
    let others = format!(
        "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding)
         select {TENANT}, ('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid, '', '', '', false, '{{}}', '', 0,
            '{{}}', 1
         from generate_series(1, 20000) as n;
         insert into ai_separator (tenant_id, conversation_id, after_message_id)
         select {TENANT}, conversation_id, 0 from ai_conversation;
         insert into ai_model (tenant_id, model) select {TENANT}, 'model ' || n from generate_series(1, 20000) as n;"
    );
    sqlx::raw_sql(AssertSqlSafe(others))
        .execute(&mut *db)
        .await
        .expect("fills in others");
    for messages in [SHORT, LONG] {
        let (id, last) = (conversation(messages), messages - TAIL);
        // The last of the steps from `first` is exactly `last`.
        let first = last % STEP + STEP;
        let sql = format!(
            "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
                system_prompt, system_prompt_tokens, policy, encoding, last_message_id, counted_message_id, turn, last_role)
             values ({TENANT}, {id}, '', '', '', false, '{{}}', '', 0, '{{\"model\":\"model 7\"}}', 1, {messages},
                {messages}, {messages} / 2, 2);
             insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count,
                text_bytes, content, content_digest)
             select {TENANT}, {id}, n, 2 - n % 2, (n + 1) / 2, 100, 100, 400,
                ('[{{\"type\":\"text\",\"text\":\"' || repeat('0123456789', 40) || '\"}}]')::json, '\\x00'
             from generate_series(1, {messages}) as n;
             insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id,
                previous_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id,
                source_digest, tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms)
             select {TENANT}, {id}, 1, n, lag(n) over (order by n), 'so far', 2, 2, 'm', 1, coalesce(lag(n) over (order by n), 0) + 1, '\\x00', 9, 2, 1, 2, '', 1
             from generate_series({first}, {last}, {STEP}) as n;
             insert into ai_context_prefix (tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id,
                system_prompt_digest, swapped_message_id, swapped_message_ids, cut, at_message_id, reason,
                broken_message_id, rewritten_tokens, saved_tokens)
             select {TENANT}, {id}, n / {STEP}, '\\x00', n, '\\x00', 0, '{{}}', false, n, 2, 1, 1, 1
             from generate_series({first}, {last}, {STEP}) as n;"
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *db)
            .await
            .expect("fills in a history");
    }
    sqlx::raw_sql("vacuum (analyze)")
        .execute(db)
        .await
        .expect("analyzes");
}

/// Runs a statement. Returns the topmost node of its plan with actual numbers.
async fn explain_analyze(db: &mut PgConnection, mode: &str, sql: &str, arguments: &str) -> Value {
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; set plan_cache_mode = {mode}; prepare asked as {sql}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .expect("prepares");
    let explain =
        format!("explain (analyze, buffers, timing off, format json) execute asked ({arguments})");
    let row = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(&mut *db)
        .await
        .expect("explains");
    sqlx::raw_sql(AS_OWNER).execute(db).await.expect("resets");
    let plans: Value = row.get(0);
    plans[0]["Plan"].clone()
}

/// Every scan of a table in a plan: this node and those below it.
pub(crate) fn scans(node: &Value) -> Vec<&Value> {
    let below = node["Plans"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(scans);
    node.get("Relation Name")
        .map(|_| node)
        .into_iter()
        .chain(below)
        .collect()
}

/// Asserts that every table is read by an index, bitmap scans included. Returns the number of rows
/// that were read, including those that a filter removed.
fn count_rows_read_by_index(plan: &Value) -> i64 {
    let mut visited = 0;
    for scan in scans(plan) {
        let kind = scan["Node Type"].as_str().unwrap_or_default();
        assert!(
            matches!(kind, "Index Scan" | "Index Only Scan" | "Bitmap Heap Scan"),
            "{kind} of {}:\n{plan:#}",
            scan["Relation Name"]
        );
        let number = |name: &str| scan.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        let rows = number("Actual Rows")
            + number("Rows Removed by Filter")
            + number("Rows Removed by Index Recheck");
        visited += (rows * number("Actual Loops")).round() as i64;
    }
    visited
}

/// Pages that an execution has read, including those of large values.
fn buffers(plan: &Value) -> i64 {
    ["Shared Hit Blocks", "Shared Read Blocks"]
        .iter()
        .filter_map(|name| plan[name].as_i64())
        .sum()
}

#[tokio::test]
async fn a_context_reads_its_tail_whatever_the_length_of_the_history() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    for mode in PLAN_MODES {
        let mut costs = Vec::new();
        for messages in [SHORT, LONG] {
            let arguments = format!(
                "{TENANT}, {}, -5, -4, '{{\"model\": \"model 7\"}}', 1000000, false, 'model 7', {NO_LIMITS}",
                conversation(messages)
            );
            let plan = explain_analyze(&mut db, mode, CONTEXT_MATERIAL, &arguments).await;
            assert_eq!(
                plan["Actual Rows"].as_f64(),
                Some(TAIL as f64 + 1.0),
                "the conversation's row and the tail:\n{plan:#}"
            );
            costs.push((count_rows_read_by_index(&plan), buffers(&plan)));
        }
        println!(
            "{mode}: rows and pages of a context after {SHORT} and {LONG} messages: {costs:?}"
        );
        let [(short_rows, short_pages), (long_rows, long_pages)] = costs[..] else {
            panic!("two contexts")
        };
        assert_eq!(long_rows, short_rows, "{mode}: rows depend on the history");
        // Each row of the tail is read twice: to measure the tail, and to return it. Beside the tail,
        // a few rows of other tables, such as the conversation's own.
        assert!(
            long_rows <= 2 * TAIL + 6,
            "{mode}: {long_rows} rows for a tail of {TAIL}"
        );
        // Each index may be a level or two deeper, and the tail may span one more page.
        assert!(
            long_pages <= short_pages + 12,
            "{mode}: pages depend on the history: {costs:?}"
        );
    }
}

#[tokio::test]
async fn a_page_of_messages_reads_only_the_page_in_both_directions() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    // Oldest first, the last argument leaves out withdrawn messages.
    let directions = [
        ("oldest first", LIST_MESSAGES, ", false"),
        ("newest first", LIST_MESSAGES_NEWEST_FIRST, ""),
    ];
    for (direction, sql, last_argument) in directions {
        for mode in PLAN_MODES {
            for messages in [SHORT, LONG] {
                for content in [true, false] {
                    let from = messages / 2;
                    let id = conversation(messages);
                    let arguments = format!(
                        "{TENANT}, {id}, {from}, {PAGE}, 4000000, {content}, 4000000{last_argument}"
                    );
                    let plan = explain_analyze(&mut db, mode, sql, &arguments).await;
                    assert_eq!(
                        plan["Actual Rows"].as_f64(),
                        Some(PAGE as f64),
                        "{direction}, {mode}:\n{plan:#}"
                    );
                    let rows = count_rows_read_by_index(&plan);
                    // Each row is read twice: to find the end of the page, and to return it.
                    assert_eq!(
                        rows,
                        2 * PAGE,
                        "{direction}, {mode}, {messages} messages:\n{plan:#}"
                    );
                }
            }
        }
    }
}

/// Random letters and digits in words of seven, which hardly compress.
fn noise(bytes: usize) -> String {
    let mut random = 7_u64;
    let letters = (0..bytes).map(|place| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if place % 8 == 7 {
            ' '
        } else {
            char::from(b"abcdefghijklmnopqrstuvwxyz012345"[(random >> 59) as usize])
        }
    });
    letters.collect()
}

/// Creates a conversation whose first message, `first`, is large, summarized and cool. Eleven turns
/// follow it. Returns the conversation's id.
async fn create_cooled_conversation(app: &TestApp, first: &str) -> String {
    let policy = pb::Policy {
        large_message_threshold: Some(500),
        hot_zone_radius: Some(2),
        max_message_count: Some(0),
        token_threshold: Some(1_000_000_000),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append_all(vec![user(first)]).await;
    conversation.turns(11).await;
    app.run_jobs_until_idle().await;
    let context = conversation.context().await;
    assert_eq!(
        context.representation(1).0,
        pb::Representation::Summary,
        "the large message is swapped"
    );
    assert!(
        context.text().len() < 20_000,
        "a context of {} bytes",
        context.text().len()
    );
    conversation.id
}

/// The policy that is stored with the conversation, as text.
async fn stored_policy(db: &mut PgConnection, id: &str) -> String {
    let id: Uuid = id.parse().expect("an id");
    sqlx::query_scalar("select policy::text from ai_conversation where conversation_id = $1")
        .bind(id)
        .persistent(false) // explaining a statement deallocates all
        .fetch_one(db)
        .await
        .expect("is there")
}

#[tokio::test]
async fn the_original_of_a_swapped_message_is_not_read() {
    const LARGE_BYTES: usize = 4_000_000;
    let app = TestApp::start().await;
    let (large, small) = (
        create_cooled_conversation(&app, &noise(LARGE_BYTES)).await,
        create_cooled_conversation(&app, &noise(8_000)).await,
    );
    let mut db = app.db().await;
    sqlx::raw_sql("vacuum (analyze)")
        .execute(&mut db)
        .await
        .expect("analyzes");
    // "explain" does not send the rows, so it would not read their large values.
    let reading_content = format!(
        "select max(octet_length(\"content?: StoredText\"::text)) from ({CONTEXT_MATERIAL}) as material"
    );
    for mode in PLAN_MODES {
        let mut pages = Vec::new();
        for (id, radius) in [(&large, 2), (&small, 2), (&large, 1_000)] {
            let arguments = format!(
                "{TENANT}, '{id}', -{radius}, 1 - {radius}, '{}', 500, false, null, {NO_LIMITS}",
                stored_policy(&mut db, id).await
            );
            let plan = explain_analyze(&mut db, mode, &reading_content, &arguments).await;
            assert!(
                plan["Plans"][0]["Actual Rows"].as_f64() > Some(20.0),
                "the policy is the stored one, and the tail is returned:\n{plan:#}"
            );
            pages.push(buffers(&plan));
        }
        println!(
            "{mode}: pages read with 4 MB swapped, with 8 kB swapped, with 4 MB sent: {pages:?}"
        );
        let [large_swapped, small_swapped, large_sent] = pages[..] else {
            panic!("three contexts")
        };
        assert!(
            large_swapped <= small_swapped + 8,
            "{mode}: {large_swapped} pages with 4 MB swapped, {small_swapped} with 8 kB swapped"
        );
        let pages_of_the_original = LARGE_BYTES as i64 / 8_192;
        assert!(
            large_sent > pages_of_the_original / 2,
            "{mode}: reading the original costs only {large_sent} pages, so the test proves nothing"
        );
        assert!(
            large_swapped < pages_of_the_original / 10,
            "{mode}: {large_swapped} pages"
        );
    }
}

/// Pages of large values of messages that were read, according to PostgreSQL's statistics.
async fn pages_of_large_values(db: &mut PgConnection) -> i64 {
    let sql = "select toast_blks_read + toast_blks_hit from pg_statio_user_tables where relname = 'ai_message'";
    sqlx::query_scalar(sql).fetch_one(db).await.expect("counts")
}

/// Scans of the indexes of messages, according to PostgreSQL's statistics.
async fn scans_of_messages(db: &mut PgConnection) -> i64 {
    let sql = "select idx_scan from pg_stat_user_tables where relname = 'ai_message'";
    sqlx::query_scalar(sql).fetch_one(db).await.expect("counts")
}

/// Waits until PostgreSQL's statistics show more scans than before. A backend reports them when it
/// is used again, a second later at the earliest.
async fn wait_for_statistics(app: &TestApp, db: &mut PgConnection, before: i64) {
    eventually("PostgreSQL has counted what the server read", async || {
        let ask = pb::GetConversationRequest {
            conversation_id: Uuid::nil().to_string(),
        };
        assert!(app.conversations().get_conversation(ask).await.is_err());
        scans_of_messages(db).await > before
    })
    .await;
}

#[tokio::test]
async fn the_servers_contexts_do_not_read_the_original_of_a_swapped_message() {
    let app = TestApp::start().await;
    let id = create_cooled_conversation(&app, &noise(4_000_000)).await;
    let mut db = app.db().await;
    let mut read = Vec::new();
    for _ in 0..3 {
        let scans = scans_of_messages(&mut db).await;
        // The condition holds at once: one call lets the backend report its earlier reads.
        wait_for_statistics(&app, &mut db, scans - 1).await;
        let before = pages_of_large_values(&mut db).await;
        let ask = pb::BuildContextRequest {
            conversation_id: id.clone(),
            ..Default::default()
        };
        app.contexts().build_context(ask).await.expect("builds");
        wait_for_statistics(&app, &mut db, scans).await;
        read.push(pages_of_large_values(&mut db).await - before);
    }
    let ask = pb::GetMessageRequest {
        conversation_id: id,
        message_id: 1,
        ..Default::default()
    };
    let scans = scans_of_messages(&mut db).await;
    let before = pages_of_large_values(&mut db).await;
    app.messages().get_message(ask).await.expect("reads");
    wait_for_statistics(&app, &mut db, scans).await;
    let original = pages_of_large_values(&mut db).await - before;
    println!(
        "pages of large values: {read:?} for three contexts, {original} for the message itself"
    );
    // One of the three figures may include earlier reads of other sessions that are reported late,
    // or an autovacuum.
    let without_original = read.iter().filter(|pages| **pages < 16).count();
    assert!(
        without_original >= 2,
        "contexts read {read:?} pages of large values"
    );
    assert!(
        original > 200,
        "the message itself takes only {original} pages, so the test proves nothing"
    );
}
