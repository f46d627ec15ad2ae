//! Frequent statements read messages and jobs by index, with 100,000 rows of each. Generic plans
//! that were made on empty tables read by key too.

use anneal_core::policy::SessionSettings;
use anneal_testkit::TestApp;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

/// Id of the tenant whose conversations and messages are read, as an SQL literal.
pub(crate) const TENANT: &str = "'00000000-0000-7000-8000-000000000001'";
/// Id of a tenant without rows, as an SQL literal.
const NOBODY: &str = "'00000000-0000-7000-8000-0000000000ff'";
/// Id of the conversation with 100,000 messages, as an SQL literal.
const CONVERSATION: &str = "'00000000-0000-7000-8000-0000000000aa'";
/// SQL that gives a session the role and settings of servers and workers, so that row-level
/// security applies.
pub(crate) const AS_SERVERS: &str = "set role anneal_app;
    set anneal.tenants = '{00000000-0000-7000-8000-000000000001,00000000-0000-0000-0000-000000000000}'";
/// SQL that gives the session the owner's role again.
pub(crate) const AS_OWNER: &str = "reset role";

/// Name and text of a statement, and its arguments.
macro_rules! statement {
    ($name:literal, $($argument:expr),*) => {
        ($name, include_str!(concat!("../../../store/sql/", $name, ".sql")), vec![$(String::from($argument)),*])
    };
}

/// The frequent statements: name, text and arguments of each. Ids of conversations also serve as
/// leases of jobs.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn statements() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let bases = || format!("'{}'", SessionSettings::default().bases());
    let nothing = "'{}'";
    let tenant = || TENANT.to_owned();
    let conversation = || CONVERSATION.to_owned();
    // An array with one element of this type.
    let single = |value: &str, element_type: &str| format!("array[{value}]::{element_type}[]");
    // An array with 128 elements. Of `conversations` only the first exists, of `jobs` all but the
    // first. The numbers of `jobs` are multiples of 3, because `fill` gives such jobs the kind 1.
    let many = |element: &dyn Fn(usize) -> String| {
        format!(
            "'{{{}}}'",
            (0..128).map(element).collect::<Vec<_>>().join(",")
        )
    };
    let tenants = || many(&|_| TENANT.trim_matches('\'').to_owned());
    let conversations = || many(&|n| format!("00000000-0000-7000-8000-{:012x}", 0xaa + n));
    let jobs = || many(&|n| format!("00000000-0000-7000-9000-{:012}", 3 * n));
    let multiples = |factor: usize| many(&|n| (n * factor).to_string());
    let ones = || many(&|_| "1".to_owned());
    let models = || many(&|_| "gpt-4o".to_owned());
    vec![
        statement!(
            "context_material",
            tenant(),
            conversation(),
            "-5",
            "-4",
            nothing,
            "1000000",
            "false",
            "null",
            "1048576",
            "0",
            "0"
        ),
        statement!(
            "context_left_out",
            tenant(),
            conversation(),
            "99950",
            "49990",
            "1000000",
            "false",
            nothing,
            "134217728"
        ),
        statement!("boundary", tenant(), conversation()),
        statement!("tail_usage", tenants(), conversations(), bases(), nothing),
        statement!(
            "checkpoint_material",
            tenant(),
            conversation(),
            bases(),
            nothing
        ),
        statement!(
            "checkpoint_sources",
            tenant(),
            conversation(),
            "99000",
            "99050",
            "1000000"
        ),
        statement!(
            "content_bytes",
            tenant(),
            conversation(),
            "99000",
            "99050",
            "1000000"
        ),
        statement!(
            "unsummarized_messages",
            tenant(),
            conversation(),
            bases(),
            "true",
            "9"
        ),
        statement!("economics_messages", tenant(), conversation(), "10000"),
        statement!(
            "uncounted_messages",
            tenants(),
            conversations(),
            "32",
            "32768",
            "true"
        ),
        statement!(
            "uncounted_messages",
            tenants(),
            conversations(),
            "500",
            "8000000",
            "false"
        ),
        statement!("lock_conversations", tenants(), conversations(), "7"),
        statement!(
            "put_trigger_bounds",
            tenants(),
            conversations(),
            ones(),
            ones(),
            ones(),
            models(),
            ones(),
            "7"
        ),
        statement!(
            "record_counts",
            tenants(),
            conversations(),
            multiples(780),
            ones(),
            tenants(),
            conversations(),
            ones()
        ),
        statement!(
            "enqueue_jobs",
            tenants(),
            ones(),
            conversations(),
            "null",
            "null"
        ),
        statement!("heartbeat_jobs", "1", jobs(), conversations(), "15"),
        statement!(
            "list_messages",
            tenant(),
            conversation(),
            "50000",
            "50",
            "4000000",
            "true",
            "1048576",
            "false"
        ),
        statement!("message_extent", tenant(), conversation()),
        statement!(
            "list_messages_newest_first",
            tenant(),
            conversation(),
            "50000",
            "50",
            "4000000",
            "true",
            "1048576"
        ),
        statement!("get_message", tenant(), conversation(), "77777", "1048576"),
        statement!(
            "get_message_range",
            tenant(),
            conversation(),
            "77777",
            "3",
            "1",
            "1048576"
        ),
        statement!(
            "find_turns",
            tenant(),
            conversation(),
            conversation(),
            "''",
            "'00aa'",
            "77777",
            "null"
        ),
        statement!("find_turn_question", tenant(), conversation(), "'r'"),
        statement!(
            "question_messages",
            tenant(),
            conversation(),
            "77777",
            "100"
        ),
        statement!("question_of_message", tenant(), conversation(), "77777"),
        statement!(
            "list_alternatives",
            tenant(),
            conversation(),
            "77777",
            "100"
        ),
        statement!(
            "standing_answer",
            tenant(),
            conversation(),
            "77777",
            "10000",
            "128"
        ),
        statement!(
            "answer_excerpts",
            tenant(),
            conversation(),
            "'{77776}'",
            "1024"
        ),
        statement!("find_stops", tenants(), conversations(), conversations()),
        statement!(
            "find_turn_end",
            tenant(),
            conversation(),
            "'answer to r'",
            "'chat_stopped'"
        ),
        statement!(
            "append",
            single(TENANT, "uuid"),
            single(CONVERSATION, "uuid"),
            single("1", "bigint"),
            single("1", "smallint"),
            single("0", "integer"),
            single("1", "integer"),
            single("9", "bigint"),
            single("9", "bigint"),
            single("null", "bigint"),
            single("'r'", "text"),
            single("true", "boolean"),
            single("'a title'", "text"),
            single("null", "text"),
            single("1", "smallint"),
            single("9", "bigint"),
            single("2", "bigint"),
            single("'x'", "bytea"),
            single("1", "smallint"),
            single("'zeroclaw'", "text"),
            "20",
            "1",
            "7",
            single("1", "integer"),
            single("1", "bigint"),
            single("1", "smallint"),
            single("0", "integer"),
            single("9", "bigint"),
            single("9", "bigint"),
            single("9", "bigint"),
            single("'[]'", "text"),
            single("'x'", "bytea"),
            single("null", "text"),
            single("null", "text")
        ),
        statement!(
            "append_one",
            tenant(),
            conversation(),
            "1",
            "1",
            "0",
            "1",
            "9",
            "9",
            "null",
            "'r'",
            "true",
            "'a title'",
            single("'zeroclaw'", "text"),
            "20",
            single("1", "smallint"),
            single("0", "integer"),
            single("9", "bigint"),
            single("9", "bigint"),
            single("9", "bigint"),
            single("'[]'", "text"),
            single("'x'", "bytea"),
            single("null", "text"),
            single("null", "text"),
            "'x'",
            "1",
            "null",
            "1",
            "9",
            "2",
            "7"
        ),
        statement!("append_replay", tenant(), conversation(), "'r'"),
        statement!(
            "claim_jobs",
            "1",
            "32",
            "16",
            tenant(),
            "'w'",
            conversation(),
            "15",
            "1000",
            nothing
        ),
        statement!(
            "admission_state",
            tenant(),
            conversation(),
            "'gpt-4o'",
            NOBODY,
            "false"
        ),
        statement!(
            "finish_jobs",
            "1",
            jobs(),
            conversations(),
            ones(),
            many(&|_| "false".to_owned())
        ),
        statement!(
            "fail_job",
            "1",
            conversation(),
            conversation(),
            "'e'",
            "10",
            "12"
        ),
        statement!("rescue_jobs", "1", "100", "12"),
        statement!("revoke_job_leases", tenant(), conversation(), "'{1,2,3}'"),
        statement!(
            "store_partial_summary",
            tenant(),
            conversation(),
            "3",
            "'x'",
            "'a summary'",
            "1",
            "1",
            "1",
            conversation()
        ),
    ]
}

/// Stores 100,000 messages of a conversation, with a checkpoint 50 messages before the end, and
/// 100,000 jobs of 1,000 tenants.
async fn fill(db: &mut PgConnection) {
    let sql = format!(
        "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding, last_message_id, counted_message_id, turn, last_role)
         values ({TENANT}, {CONVERSATION}, '', '', '', false, '{{}}', '', 0, '{{}}', 1, 100000, 99990, 50000, 2);
         insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes,
            content, content_digest)
         select {TENANT}, {CONVERSATION}, n, 1 + n % 2, n / 2, 10, case when n <= 99990 then 10 end, 40,
            '[{{\"type\":\"text\",\"text\":\"hello\"}}]', '\\x00'
         from generate_series(1, 100000) as n;
         insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id, summary,
            token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
            generation, trigger_kind, focus, duration_ms)
         values ({TENANT}, {CONVERSATION}, 1, 99950, 'so far', 2, 2, 'm', 1, 1, '\\x00', 9, 2, 1, 2, '', 1);
         insert into ai_job (tenant_id, kind, conversation_id)
         select ('00000000-0000-7000-8000-' || lpad((n % 1000)::text, 12, '0'))::uuid, 1 + n % 3,
            ('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid
         from generate_series(1, 100000) as n;
         analyze"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(db)
        .await
        .expect("fills");
}

/// The kind of a plan.
pub(crate) enum Plan {
    /// Made once, for all arguments.
    Generic,
    /// Made for the given arguments.
    Custom,
}

/// The plan of a statement, as `explain` prints it with these options.
pub(crate) async fn explain(
    db: &mut PgConnection,
    plan: Plan,
    options: &str,
    (name, sql, arguments): (&str, &str, &[String]),
) -> String {
    let mode = match plan {
        Plan::Generic => "force_generic_plan",
        Plan::Custom => "force_custom_plan",
    };
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; set plan_cache_mode = {mode}; prepare {name} as {sql}"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .expect("prepares");
    let explain = format!(
        "explain ({options}) execute {name} ({})",
        arguments.join(", ")
    );
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

#[tokio::test]
async fn no_frequent_statement_scans_messages_or_jobs() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    fill(&mut db).await;
    for (name, sql, arguments) in statements() {
        for kind in [Plan::Generic, Plan::Custom] {
            let plan = explain(&mut db, kind, "costs off", (name, sql, &arguments)).await;
            for table in ["ai_message", "ai_job"] {
                let scan = plan.lines().find(|line| is_seq_scan_of(line, table));
                assert!(scan.is_none(), "{name} scans {table}:\n{plan}");
            }
            // If PostgreSQL did not inline this function, the plan would not show the function's
            // scans, and they would read every column.
            let is_inlined = !plan.contains("Function Scan on context_boundary");
            assert!(is_inlined, "{name} calls context_boundary:\n{plan}");
        }
    }
}

/// The statement runs under the model's row lock and must be short. A hashed subplan would read the
/// spend of all tenants.
#[tokio::test]
async fn admission_of_a_call_does_not_read_the_spend_of_all_tenants() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    let spent = "insert into tenant (tenant_id, name)
         select gen_random_uuid(), 'tenant ' || n from generate_series(1, 1000) as n;
         insert into ai_model_spend (tenant_id, day, model, calls, failed_calls, input_tokens, output_tokens)
         select tenant_id, current_date - n, 'gpt-4o', 1, 0, 1, 1 from tenant, generate_series(1, 20) as n;
         analyze";
    sqlx::raw_sql(spent).execute(&mut db).await.expect("fills");
    let all = statements();
    let (name, sql, arguments) = all
        .iter()
        .find(|(name, ..)| *name == "admission_state")
        .expect("it is one of them");
    for kind in [Plan::Generic, Plan::Custom] {
        let plan = explain(&mut db, kind, "costs off", (name, sql, arguments)).await;
        assert!(
            !plan.contains("hashed SubPlan"),
            "{name} hashes a subplan:\n{plan}"
        );
        let scan = plan
            .lines()
            .find(|line| is_seq_scan_of(line, "ai_model_spend"));
        assert!(scan.is_none(), "{name} scans ai_model_spend:\n{plan}");
    }
}

/// Foreign keys are triggers too. Those of a table are looked at for each row, even if they do
/// nothing.
#[tokio::test]
async fn an_append_runs_no_trigger() {
    let app = TestApp::start().await;
    // Bits 2 and 4 of the type: inserts and updates.
    let triggers = "select tgrelid::regclass || ': ' || tgname from pg_trigger
        where tgrelid::regclass::text in ('ai_conversation', 'ai_message', 'ai_job', 'tenant_usage_part')
            and tgtype & 20 <> 0";
    let triggers: Vec<String> = sqlx::query_scalar(triggers)
        .fetch_all(&mut app.db().await)
        .await
        .expect("lists");
    assert_eq!(triggers, [""; 0]);
}

/// A plan may be cached when the tables are empty, and used when they are full.
#[tokio::test]
async fn plans_made_on_empty_tables_find_conversations_by_their_key() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off")
        .execute(&mut db)
        .await
        .expect("sets");
    for (name, sql, arguments) in statements() {
        let plan = explain(&mut db, Plan::Generic, "costs off", (name, sql, &arguments)).await;
        assert!(
            !plan.contains("ai_conversation_by_"),
            "{name} reads conversations by a list's index:\n{plan}"
        );
        let scan = plan.lines().find(|line| line.contains("Seq Scan on ai_"));
        assert!(scan.is_none(), "{name} scans:\n{plan}");
    }
}

/// The queue is often empty and then vacuumed. A plan that is cached at that moment must not read
/// all jobs when there are many.
#[tokio::test]
async fn plans_made_for_an_empty_queue_find_jobs_by_their_key() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off")
        .execute(&mut db)
        .await
        .expect("sets");
    let twenty = "insert into ai_job (tenant_id, kind, conversation_id)
        select gen_random_uuid(), 1 + n % 3, gen_random_uuid() from generate_series(1, 20) as n";
    for insert in ["", twenty] {
        sqlx::raw_sql(insert).execute(&mut db).await.expect("fills");
        sqlx::raw_sql("vacuum analyze ai_job")
            .execute(&mut db)
            .await
            .expect("vacuums");
        for (name, sql, arguments) in statements() {
            let plan = explain(&mut db, Plan::Generic, "costs off", (name, sql, &arguments)).await;
            let lines: Vec<&str> = plan.lines().collect();
            for (number, scan) in lines
                .iter()
                .enumerate()
                .filter(|(_, line)| is_scan_of(line, "ai_job"))
            {
                let cond = lines[number + 1..]
                    .iter()
                    .find(|line| line.contains("Index Cond"))
                    .unwrap_or(&"");
                let uses_key = match name {
                    "claim_jobs" if scan.contains("ai_job_ready") => cond.contains("tenant_id"),
                    "rescue_jobs" if scan.contains("ai_job_leased") => {
                        cond.contains("lease_until_ts")
                    }
                    _ => scan.contains("ai_job_pkey") && cond.contains("conversation_id"),
                };
                assert!(
                    uses_key,
                    "{name} finds jobs by {} with {}:\n{plan}",
                    scan.trim(),
                    cond.trim()
                );
            }
        }
    }
}

/// Whether the line of a plan is a scan of this table. The line ends with the table's name, or has
/// a blank after it.
fn is_scan_of(line: &str, table: &str) -> bool {
    line.contains("Scan")
        && line
            .split(" on ")
            .nth(1)
            .is_some_and(|scanned| scanned.split(' ').next() == Some(table))
}

fn is_seq_scan_of(line: &str, table: &str) -> bool {
    line.contains("Seq Scan") && is_scan_of(line, table)
}

#[test]
fn a_scan_of_a_table_is_found_with_and_without_an_alias() {
    for line in [
        "Seq Scan on ai_job",
        "  ->  Seq Scan on ai_job j",
        "  ->  Parallel Seq Scan on ai_job",
        "  ->  Seq Scan on ai_job ai_job_1",
    ] {
        assert!(is_seq_scan_of(line, "ai_job"), "{line}");
    }
    for line in [
        "  ->  Seq Scan on ai_job_dead",
        "  ->  Index Scan using ai_job_pkey on ai_job",
        "  ->  Bitmap Index Scan on ai_job_ready",
    ] {
        assert!(!is_seq_scan_of(line, "ai_job"), "{line}");
    }
}
