//! The hot statements read messages and jobs by index, however many there are: 100,000 of each.

use anneal_core::policy::Session;
use anneal_tests::House;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

const TENANT: &str = "'00000000-0000-7000-8000-000000000001'";
const CONVERSATION: &str = "'00000000-0000-7000-8000-0000000000aa'";

/// A statement and the arguments that it is planned for.
macro_rules! statement {
    ($name:literal, $($argument:expr),*) => {
        ($name, include_str!(concat!("../../store/sql/", $name, ".sql")), vec![$(String::from($argument)),*])
    };
}

fn statements() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let bases = || format!("'{}'", Session::default().bases());
    let nothing = "'{}'";
    let tenant = || TENANT.to_owned();
    let talk = || CONVERSATION.to_owned();
    vec![
        statement!("context_material", tenant(), talk(), "0", "1", bases(), nothing),
        statement!("tail_usage", tenant(), talk(), bases(), nothing),
        statement!("checkpoint_material", tenant(), talk(), bases(), nothing),
        statement!("checkpoint_sources", tenant(), talk(), "99000", "99050", "1000000"),
        statement!("unsummarized_messages", tenant(), talk(), bases(), "true", "9"),
        statement!("economics_messages", tenant(), talk(), "10000"),
        statement!("uncounted_messages", tenant(), talk(), "500", "8000000"),
        statement!("list_messages", tenant(), talk(), "50000", "50", "4000000", "true"),
        statement!("list_messages_newest_first", tenant(), talk(), "50000", "50", "4000000", "true"),
        statement!("get_message", tenant(), talk(), "77777"),
        statement!("append_replay", tenant(), talk(), "'r'"),
        statement!("claim_jobs", "1", "32", "16", tenant(), "'w'", talk(), "15"),
        statement!("finish_job", "1", talk(), talk(), "1"),
        statement!("fail_job", "1", talk(), talk(), "'e'", "10", "12"),
        statement!("rescue_jobs", "100", "12"),
    ]
}

/// 100,000 counted messages behind a checkpoint with a short tail, and 100,000 jobs of 1,000 tenants.
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
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.expect("fills");
}

/// The plan that serves every caller, whatever its arguments.
async fn generic_plan(db: &mut PgConnection, name: &str, sql: &str, arguments: &[String]) -> String {
    let prepare = format!("set plan_cache_mode = force_generic_plan; prepare {name} as {sql}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *db).await.expect("prepares");
    let explain = format!("explain execute {name} ({})", arguments.join(", "));
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(db).await.expect("explains");
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn no_hot_statement_scans_messages_or_jobs() {
    let house = House::start().await;
    let mut db = house.db().await;
    fill(&mut db).await;
    for (name, sql, arguments) in statements() {
        let plan = generic_plan(&mut db, name, sql, &arguments).await;
        for table in ["ai_message", "ai_job"] {
            let scan = plan.lines().find(|line| line.contains(&format!("Seq Scan on {table} ")));
            assert!(scan.is_none(), "{name} scans {table}:\n{plan}");
        }
    }
}
