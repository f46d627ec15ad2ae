//! Row-level security: statements without a filter neither see nor change rows of another tenant,
//! and statements with one use the same indexes as without row-level security.

use std::{collections::BTreeSet, path::Path};

use anneal_testkit::{TestApp, user};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use uuid::Uuid;

/// Tables with a tenant that are read before the caller is known.
pub(crate) const WITHOUT_ROW_SECURITY: [&str; 3] = ["tenant", "api_key", "web_session"];

/// Tables with a column `tenant_id`.
pub(crate) async fn tables(db: &mut PgConnection) -> BTreeSet<String> {
    let sql = "select distinct table_name::text from information_schema.columns
        where table_schema = current_schema() and column_name = 'tenant_id'";
    sqlx::query_scalar::<_, String>(sql)
        .fetch_all(db)
        .await
        .expect("lists")
        .into_iter()
        .collect()
}

/// A connection with the role of servers, for these tenants (a PostgreSQL array).
async fn connect_as_server(app: &TestApp, tenants: &str) -> PgConnection {
    let mut db = app.db().await;
    let sql = format!("set role anneal_app; set anneal.tenants = '{tenants}'");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut db)
        .await
        .expect("sets");
    db
}

/// A connection with the role of servers, for the default tenant and this binding.
async fn connect_bound(app: &TestApp, bound: &str) -> PgConnection {
    let mut db = connect_as_server(app, "{00000000-0000-7000-8000-000000000001}").await;
    let sql = format!("set anneal.bound = '{bound}'");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut db)
        .await
        .expect("sets");
    db
}

async fn count(db: &mut PgConnection, table: &str) -> i64 {
    let sql = format!("select count(*) from {table}");
    sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_one(db)
        .await
        .expect("counts")
}

/// Starts an app with a row of the default tenant in every table of [`tables`].
async fn start_with_a_row_in_every_table() -> TestApp {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append_all(vec![user("a secret")]).await;
    let mut db = app.db().await;
    let id = conversation.uuid();
    for table in tables(&mut db).await {
        if WITHOUT_ROW_SECURITY.contains(&table.as_str()) || count(&mut db, &table).await > 0 {
            continue;
        }
        app.insert_any_row(&table, id).await;
    }
    app
}

#[tokio::test]
async fn policies_without_filters_hide_and_protect_rows_of_other_tenants() {
    let app = start_with_a_row_in_every_table().await;
    let all = tables(&mut app.db().await).await;
    let other = Uuid::now_v7();
    let mut guarded = 0;
    for table in all
        .iter()
        .filter(|table| !WITHOUT_ROW_SECURITY.contains(&table.as_str()))
    {
        guarded += 1;
        for tenants in [format!("{{{other}}}"), "{}".to_owned(), String::new()] {
            let mut db = connect_as_server(&app, &tenants).await;
            assert_eq!(
                count(&mut db, table).await,
                0,
                "{table} is visible to {tenants:?}"
            );
            for change in [
                format!("update {table} set tenant_id = tenant_id"),
                format!("delete from {table}"),
            ] {
                let changed = sqlx::raw_sql(AssertSqlSafe(change.clone()))
                    .execute(&mut db)
                    .await
                    .expect("runs");
                assert_eq!(changed.rows_affected(), 0, "{change} as {tenants:?}");
            }
        }
        let mut owner = app.db().await;
        assert!(count(&mut owner, table).await > 0, "{table} has a row");
        let mut db = connect_as_server(&app, "{00000000-0000-7000-8000-000000000001}").await;
        assert!(
            count(&mut db, table).await > 0,
            "{table} is visible to its tenant"
        );
        // A row cannot be moved to another tenant.
        let sql = format!("update {table} set tenant_id = '{other}'");
        let refused = sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut db)
            .await
            .expect_err("is refused");
        let code = refused
            .as_database_error()
            .and_then(|error| error.code().map(|code| code.to_string()));
        assert_eq!(code.as_deref(), Some("42501"), "{table}: {refused}");
    }
    assert!(guarded >= 15, "{guarded} tables");
}

#[tokio::test]
async fn policies_without_filters_hide_and_protect_rows_that_are_foreign_to_a_binding() {
    let app = start_with_a_row_in_every_table().await;
    let mut owner = app.db().await;
    // Some tables got their rows with another conversation than the one of others.
    let sql = "update ai_conversation set user_id = 'anna', agent_id = 'a'";
    sqlx::raw_sql(sql).execute(&mut owner).await.expect("runs");
    let own = "select conversation_id::text from ai_conversation";
    let own: String = sqlx::query_scalar(own)
        .fetch_one(&mut owner)
        .await
        .expect("there is one");
    let tables = app.list_tables_of_conversations().await;
    assert!(tables.len() >= 20, "{tables:?}");
    for table in &tables {
        for foreign in [
            format!("user:{}", hex::encode("bert")),
            format!("user:{}", hex::encode("a")),
            format!("agent:{}", hex::encode("b")),
            format!("agent:{}", hex::encode("anna")),
            format!("conversation:{}", Uuid::now_v7()),
            "nothing".to_owned(),
        ] {
            let mut db = connect_bound(&app, &foreign).await;
            assert_eq!(count(&mut db, table).await, 0, "{table} {foreign}");
            // The policy is one of reads: it hides the rows of every statement that reads a column.
            for change in [
                format!("update {table} set tenant_id = tenant_id"),
                format!("delete from {table} where tenant_id is not null"),
            ] {
                let changed = sqlx::raw_sql(AssertSqlSafe(change.clone()));
                let changed = changed.execute(&mut db).await.expect("runs");
                assert_eq!(changed.rows_affected(), 0, "{change} as {foreign}");
            }
        }
        for bound in [
            format!("user:{}", hex::encode("anna")),
            format!("agent:{}", hex::encode("a")),
            format!("conversation:{own}"),
        ] {
            let mut db = connect_bound(&app, &bound).await;
            assert!(count(&mut db, table).await > 0, "{table} {bound}");
        }
    }
    // Nobody can give a conversation away, or create one for others.
    let mut db = connect_bound(&app, &format!("user:{}", hex::encode("anna"))).await;
    let sql = "update ai_conversation set user_id = 'bert'";
    let refused = sqlx::raw_sql(sql).execute(&mut db).await;
    let refused = refused.expect_err("is refused");
    let code = refused
        .as_database_error()
        .and_then(|error| error.code().map(|code| code.to_string()));
    assert_eq!(code.as_deref(), Some("42501"), "{refused}");
}

#[tokio::test]
async fn every_table_with_conversations_has_the_policy_of_bindings() {
    let app = TestApp::start().await;
    let sql = "select tablename::text from pg_policies
        where schemaname = current_schema() and policyname = 'of_bound' and permissive = 'RESTRICTIVE' order by 1";
    let guarded: Vec<String> = sqlx::query_scalar(sql)
        .fetch_all(&mut app.db().await)
        .await
        .expect("lists");
    assert_eq!(guarded, app.list_tables_of_conversations().await);
}

#[tokio::test]
async fn statements_of_callers_that_are_not_bound_only_test_a_setting() {
    let app = TestApp::start().await;
    let mut db = connect_as_server(&app, "{00000000-0000-7000-8000-000000000001}").await;
    for table in app.list_tables_of_conversations().await {
        let sql = format!(
            "set enable_seqscan = off; explain (verbose, costs off)
             select conversation_id from {table} where conversation_id = '00000000-0000-7000-8000-000000000001'"
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut db).await;
        let plan: Vec<String> = rows
            .expect("explains")
            .iter()
            .map(|row| row.get::<String, _>(0))
            .collect();
        let plan = plan.join("\n");
        // The setting is read once for the statement; without a binding nothing else is evaluated.
        assert!(!plan.contains("SubPlan"), "{table}: {plan}");
        let begins_with_null_test = ["IS NULL) OR ", "IS NULL) THEN true"]
            .iter()
            .any(|test| plan.contains(test));
        assert!(begins_with_null_test, "{table}: {plan}");
    }
}

#[tokio::test]
async fn the_server_role_owns_nothing_and_cannot_bypass_row_security() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    let flags: (bool, bool, bool, bool) = sqlx::query_as(
        "select rolsuper, rolbypassrls, rolcreaterole, rolcanlogin from pg_roles where rolname = 'anneal_app'",
    )
    .fetch_one(&mut db)
    .await
    .expect("the role is there");
    assert_eq!(flags, (false, false, false, false));
    let owned: i64 = sqlx::query_scalar(
        "select count(*) from pg_class where relowner = (select oid from pg_roles where rolname = 'anneal_app')",
    )
    .fetch_one(&mut db)
    .await
    .expect("counts");
    assert_eq!(owned, 0);
    for statement in [
        "insert into tenant (tenant_id, name) values (gen_random_uuid(), 'x')",
        "insert into api_key (key_id, tenant_id, name, secret_digest, verbs)
         values (gen_random_uuid(), '00000000-0000-7000-8000-000000000001', 'x', sha256(''), 15)",
        "update api_key set verbs = 15",
        "update tenant set name = 'x'",
        "alter table ai_message disable row level security",
        "drop policy of_tenant on ai_message",
        "create table mine (n int)",
    ] {
        let mut db = connect_as_server(&app, "{00000000-0000-7000-8000-000000000001}").await;
        let outcome = sqlx::raw_sql(statement).execute(&mut db).await;
        let error = outcome.expect_err(statement);
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(|code| code.to_string()));
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
    }
}

/// The line of a plan without the numbers after this prefix. They count parameters and subplans,
/// also those that row-level security adds.
fn without_numbers(line: &str, prefix: &str) -> String {
    line.split(prefix)
        .map(|part| part.trim_start_matches(|sign: char| sign.is_ascii_digit()))
        .collect()
}

/// Tables that grow with the messages. Only their index scans are compared: for the other tables,
/// which stay small, PostgreSQL may choose either of two indexes.
const LARGE_TABLES: [&str; 10] = [
    "ai_conversation",
    "ai_message",
    "ai_job",
    "ai_job_dead",
    "ai_separator",
    "ai_conversation_checkpoint",
    "ai_context_prefix",
    "ai_request",
    "ai_response",
    "ai_session",
];

/// The index scans of a plan on [`LARGE_TABLES`] with their conditions, and the sequential scans on
/// every table whose name begins with `ai_`.
fn compared_scans(plan: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut scan = String::new();
    for line in plan.lines().map(str::trim_start) {
        let line = without_numbers(&without_numbers(line, "$"), "InitPlan ");
        if line.contains("Seq Scan on ai_") {
            found.insert(line.trim_start_matches("-> ").to_owned());
        } else if line.contains("Scan") && line.contains(" on ") {
            // Row-level security reads `tenant_id` from the row, so it turns an index-only scan
            // into an index scan.
            scan = line
                .trim_start_matches("->")
                .trim()
                .replace("Index Only Scan", "Index Scan");
        } else if let Some((_, condition)) = line.split_once("Cond: ") {
            let table = scan
                .split(" on ")
                .nth(1)
                .and_then(|named| named.split(' ').next())
                .unwrap_or_default();
            if LARGE_TABLES.contains(&table) {
                found.insert(format!("{scan}: {condition}"));
            }
        }
    }
    found
}

#[tokio::test]
async fn statements_use_the_same_indexes_with_and_without_row_security() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    // Enough rows that the planner prefers an index.
    let many = "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
            system_prompt, system_prompt_tokens, policy, encoding)
        select '00000000-0000-7000-8000-000000000001', gen_random_uuid(), 'a', 'u', 't', false, '{}', '', 0, '{}', 1
        from generate_series(1, 20000)";
    sqlx::raw_sql(many).execute(&mut db).await.expect("fills");
    sqlx::raw_sql("vacuum analyze")
        .execute(&mut db)
        .await
        .expect("analyzes");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.sqlx");
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).expect("the folder .sqlx") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("reads");
        let query: Value = serde_json::from_str(&text).expect("is JSON");
        let sql = query["query"].as_str().expect("a statement");
        let parameters = query["describe"]["parameters"]["Left"]
            .as_array()
            .map_or(0, Vec::len);
        let statements = ["select", "with", "insert", "update", "delete"];
        let first_line = sql
            .lines()
            .find(|line| !line.trim_start().starts_with("--"))
            .unwrap_or_default()
            .trim_start();
        // Left out: statements on other tables, and on tables of older systems, which do not exist
        // here.
        if !sql.contains("ai_")
            || sql.contains("legacy")
            || !statements.iter().any(|word| first_line.starts_with(word))
        {
            continue;
        }
        let mut plans = Vec::new();
        for role in ["reset role", "set role anneal_app"] {
            let prepare = format!(
                "{role}; deallocate all; set enable_seqscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan;
                 prepare asked as {sql}"
            );
            sqlx::raw_sql(AssertSqlSafe(prepare))
                .execute(&mut db)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
            let nulls = vec!["null"; parameters].join(", ");
            let nulls = if nulls.is_empty() {
                nulls
            } else {
                format!("({nulls})")
            };
            let explain = format!("explain (costs off) execute asked{nulls}");
            let rows = sqlx::raw_sql(AssertSqlSafe(explain))
                .fetch_all(&mut db)
                .await
                .expect("explains");
            plans.push(
                rows.iter()
                    .map(|row| row.get::<String, _>(0))
                    .collect::<Vec<_>>()
                    .join("\n"),
            );
        }
        compared += 1;
        assert_eq!(
            compared_scans(&plans[0]),
            compared_scans(&plans[1]),
            "{sql}\n{}\n{}",
            plans[0],
            plans[1]
        );
    }
    assert!(compared > 60, "{compared} statements");
}
