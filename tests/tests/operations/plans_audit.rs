//! An audit reads a limited number of conversations and of messages, the newest ones.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::plans::{AS_OWNER, AS_SERVERS, TENANT};

/// Chooses the conversations to audit.
const CANDIDATES: &str = include_str!("../../../store/sql/audit_candidates.sql");
/// Looks for rows of conversations that do not exist.
const ORPHANS: &str = include_str!("../../../store/sql/find_orphaned_rows.sql");
/// Finds the message after which the audit of a conversation begins.
const WINDOW: &str = include_str!("../../../store/sql/audit_window.sql");
/// Reads changes of messages.
const CHANGES: &str = include_str!("../../../store/sql/verify_changes.sql");
/// Reads checkpoints that no longer hold.
const VOID: &str = include_str!("../../../store/sql/verify_void_checkpoints.sql");
/// Reads the versions that no longer stand.
const VERSIONS: &str = include_str!("../../../store/sql/verify_versions.sql");

/// The conversation with many messages, as an SQL literal.
const LONG: &str = "'00000000-0000-7000-b000-000000000001'";

/// Stores 100,000 conversations, a second apart. The first has about 20,000 messages, and about
/// 20,000 others have three each.
async fn fill(db: &mut PgConnection) {
    let sql = format!(
        "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding, last_activity_ts, listed_ts)
         select {TENANT}, ('00000000-0000-7000-b000-' || lpad(n::text, 12, '0'))::uuid, '', '', '', false, '{{}}', '', 0,
            '{{}}', 1, now() - n * interval '1 second', now() - n * interval '1 second'
         from generate_series(1, 100000) as n;
         insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest)
         select {TENANT}, ('00000000-0000-7000-b000-' || lpad((1 + greatest(n - 20000, 0) / 3)::text, 12, '0'))::uuid,
            case when n <= 20000 then n else 100000 + n end, 1, 1, 1, 100, '[]', ''
         from generate_series(1, 80000) as n;
         analyze"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(db)
        .await
        .expect("fills");
}

/// Runs a statement with its generic plan. Returns the plan with actual row counts.
async fn explain_analyze(db: &mut PgConnection, sql: &str, arguments: &str) -> String {
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_bitmapscan = off; prepare audit as {sql}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .expect("prepares");
    let explain = format!("explain (analyze, timing off) execute audit ({arguments})");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_all(&mut *db)
        .await
        .expect("explains");
    sqlx::raw_sql(AS_OWNER).execute(db).await.expect("resets");
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Rows that the scan of this index has returned, according to the plan.
fn rows_of_scan(plan: &str, index: &str) -> i64 {
    let scan = plan
        .lines()
        .find(|line| line.contains(index))
        .unwrap_or_else(|| panic!("the plan does not use {index}:\n{plan}"));
    let actual = scan
        .split("actual")
        .nth(1)
        .and_then(|after| after.split("rows=").nth(1))
        .expect("it ran");
    let number: String = actual.chars().take_while(char::is_ascii_digit).collect();
    number.parse().expect("a number")
}

#[tokio::test]
async fn an_audit_reads_256_of_100_000_conversations_and_2_000_messages_of_a_long_one() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    // At most 256 conversations with activity in the last 24 hours.
    let candidates = explain_analyze(
        &mut db,
        CANDIDATES,
        &format!("array[{TENANT}]::uuid[], 256, 24"),
    )
    .await;
    assert_eq!(
        rows_of_scan(&candidates, "ai_conversation_by_activity"),
        256,
        "{candidates}"
    );
    assert!(!candidates.contains("Removed by Filter"), "{candidates}");
    // At most 2,000 messages and 16 MiB.
    let arguments = format!("{TENANT}, {LONG}, 2000, 16777216");
    let window = explain_analyze(&mut db, WINDOW, &arguments).await;
    assert_eq!(rows_of_scan(&window, "ai_message_pkey"), 2_000, "{window}");
    assert!(!window.contains("Seq Scan"), "{window}");
    // About eight pages, of more than a thousand. Each conversation is found by its key.
    let orphans = explain_analyze(
        &mut db,
        ORPHANS,
        &format!("array[{TENANT}]::uuid[], 100.0 * 8 * 8192"),
    )
    .await;
    let read = rows_of_scan(&orphans, "Sample Scan on ai_message");
    assert!(read < 5_000, "{read}:\n{orphans}");
    assert!(!orphans.contains("Seq Scan"), "{orphans}");
    assert!(
        orphans.contains("Scan using ai_conversation_pkey"),
        "{orphans}"
    );
}

/// Stores 20,000 changes of messages of the long conversation, for each a checkpoint that no longer
/// holds, and for each message an earlier version.
async fn fill_in_changes(db: &mut PgConnection) {
    let sql = format!(
        "insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, void_checkpoints)
         select {TENANT}, {LONG}, n, 3, array[n], array[n], 1 from generate_series(1, 20000) as n;
         insert into ai_void_checkpoint (tenant_id, conversation_id, void_change_id, first_message_id, last_message_id,
            summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before,
            tokens_after, generation, trigger_kind, focus, duration_ms, model_calls, input_tokens, output_tokens, created_ts)
         select {TENANT}, {LONG}, n, 1, n, '', 1, 1, '', 1, 1, '', 1, 1, 1, 1, '', 1, 1, 1, 1, now()
         from generate_series(1, 20000) as n;
         insert into ai_message_version (tenant_id, conversation_id, message_id, version, change_id, token_estimate,
            text_bytes, content_bytes, content, content_digest, created_ts)
         select {TENANT}, {LONG}, n, 1, n, 1, 1, 2, '[]', '', now() from generate_series(1, 20000) as n;
         analyze"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(db)
        .await
        .expect("fills in changes");
}

#[tokio::test]
async fn an_audit_reads_100_of_20_000_changes_and_2_000_of_20_000_versions() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    fill_in_changes(&mut db).await;
    let statements = [
        (
            CHANGES,
            format!("{TENANT}, {LONG}, 9223372036854775807, 100"),
            ("ai_message_change_pkey", 100),
        ),
        (
            VOID,
            format!("{TENANT}, {LONG}, 100"),
            ("ai_void_checkpoint_pkey", 100),
        ),
        (
            VERSIONS,
            format!("{TENANT}, {LONG}, 10000, 2147483647, 2000, false"),
            ("ai_message_version_pkey", 2_000),
        ),
    ];
    for (sql, arguments, (index, rows)) in statements {
        let plan = explain_analyze(&mut db, sql, &arguments).await;
        assert_eq!(rows_of_scan(&plan, index), rows, "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        assert!(!plan.contains("Removed by Filter"), "{plan}");
    }
}
