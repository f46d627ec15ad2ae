//! Watches read messages, checkpoints, changes of messages and dead jobs by index.

use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::plans::{Plan, TENANT, explain};

/// Options of `explain` that run the statement and print actual row counts.
const MEASURED: &str = "analyze, costs off, timing off";
/// Id of the conversation with 100,000 messages, as an SQL literal.
const CONVERSATION: &str = "'00000000-0000-7000-9000-000000000007'";

/// The statements of a watch: name, text and arguments of each.
fn statements() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let (tenant, conversation) = (TENANT.to_owned(), CONVERSATION.to_owned());
    // An array with 1,000 elements.
    let array = |element: &dyn Fn(usize) -> String| {
        format!(
            "'{{{}}}'",
            (1..=1_000).map(element).collect::<Vec<_>>().join(",")
        )
    };
    vec![
        (
            "watched_heads",
            include_str!("../../../store/sql/watched_heads.sql"),
            vec![
                array(&|_| TENANT.trim_matches('\'').to_owned()),
                array(&|n| format!("00000000-0000-7000-9000-{n:012}")),
            ],
        ),
        (
            "conversation_changes",
            include_str!("../../../store/sql/conversation_changes.sql"),
            [tenant.clone(), conversation.clone()]
                .into_iter()
                .chain(["5", "900", "0", "0", "50"].map(String::from))
                .collect(),
        ),
        (
            "dead_jobs",
            include_str!("../../../store/sql/dead_jobs.sql"),
            vec![tenant, conversation],
        ),
    ]
}

/// Stores 50,000 conversations, each with a dead job, a checkpoint and a change of messages. One of
/// them has 100,000 messages, of which 1,000 have summaries, 5,000 more checkpoints and 5,000 more
/// changes.
async fn fill(db: &mut PgConnection) {
    let id = "('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid";
    let sql = format!(
        "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding)
         select {TENANT}, {id}, '', '', '', false, '{{}}', '', 0, '{{}}', 1 from generate_series(1, 50000) as n;
         insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts)
         select {TENANT}, 1 + n % 3, {id}, 1, 12, now() from generate_series(1, 50000) as n;
         insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id, summary,
            token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
            generation, trigger_kind, focus, duration_ms, change_id)
         select {TENANT}, {id}, 1, 50, 'so far', 2, 2, 'm', 1, 1, '\\x00', 9, 2, 1, 2, '', 1, 1
         from generate_series(1, 50000) as n;
         insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id, summary,
            token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
            generation, trigger_kind, focus, duration_ms, change_id)
         select {TENANT}, {CONVERSATION}, 1, 50 + n, 'so far', 2, 2, 'm', 1, 1, '\\x00', 9, 2, 1, 2, '', 1, 2000 + n
         from generate_series(1, 5000) as n;
         insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes, content,
            content_digest, summary_cache, summary_tokens, summary_kind, summary_change_id)
         select {TENANT}, {CONVERSATION}, n, 1 + n % 2, n / 2, 10, 40, '[]', '\\x00',
            case when n % 100 = 0 then 's' end, case when n % 100 = 0 then 1 end, case when n % 100 = 0 then 2 end,
            case when n % 100 = 0 then 1 + n / 100 end
         from generate_series(1, 100000) as n;
         insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, void_checkpoints)
         select {TENANT}, {id}, 2, 1, '{{1}}', '{{2}}', 0 from generate_series(1, 50000) as n;
         insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, void_checkpoints)
         select {TENANT}, {CONVERSATION}, 10000 + n, 1, '{{1}}', '{{2}}', 0 from generate_series(1, 5000) as n;
         analyze"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(db)
        .await
        .expect("fills");
}

#[tokio::test]
async fn watches_read_by_index() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    for (name, sql, arguments) in statements() {
        let plan = explain(&mut db, Plan::Generic, MEASURED, (name, sql, &arguments)).await;
        let scan = plan.lines().find(|line| line.contains("Seq Scan"));
        assert!(scan.is_none(), "{name} scans:\n{plan}");
        if name == "conversation_changes" {
            for index in ["ai_message_by_summary_change", "ai_message_change_pkey"] {
                assert!(plan.contains(index), "{index}: {plan}");
            }
        }
    }
}

#[tokio::test]
async fn a_watch_reads_only_the_new_ones_of_5_000_checkpoints_and_5_000_changes_of_messages() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    // Ten of the checkpoints of `fill`, and ten of its changes of messages.
    for (table, after, through) in [
        ("ai_conversation_checkpoint", "6990", "7000"),
        ("ai_message_change", "14990", "15000"),
    ] {
        let (name, sql, mut arguments) = statements()
            .into_iter()
            .find(|(name, ..)| *name == "conversation_changes")
            .expect("it is one of them");
        (arguments[2], arguments[3]) = (after.into(), through.into());
        let plan = explain(&mut db, Plan::Generic, MEASURED, (name, sql, &arguments)).await;
        let on_table = format!("on {table}");
        let lines = plan.lines().skip_while(|line| !line.contains(&on_table));
        let (mut read, mut lines) = (Vec::new(), lines.peekable());
        let scan = lines.peek().expect("the table is read");
        read.extend(number_after(scan, "rows="));
        read.extend(lines.filter_map(|line| number_after(line, "Rows Removed by Filter: ")));
        assert_eq!(read, [10.0], "rows of {table} that are read:\n{plan}");
    }
}

fn number_after(line: &str, word: &str) -> Option<f64> {
    let digits = line
        .split(word)
        .nth(1)?
        .split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .next()?;
    digits.parse().ok()
}
