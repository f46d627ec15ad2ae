//! The baseline of the append benchmark is a bare append, and stays one: every ratio in
//! docs/performance.md compares with it.

use anneal_testkit::TestApp;
use sqlx::{Connection as _, PgConnection};

/// The SQL that creates the tables and the conversations.
const TABLES: &str = include_str!("../../../../dev/bench/sql/bare_tables.sql");
/// The SQL of one append.
const APPEND: &str = include_str!("../../../../dev/bench/sql/bare_append.pgbench.sql");

/// Every column, and every constraint and trigger of the tables. PostgreSQL 18 also lists
/// `not null` as constraints.
const DEFINITIONS: &str = "
    select format('%s.%s %s', table_name, column_name, data_type)
    from information_schema.columns where table_schema = 'bare'
    union all
    select format('%s %s', conrelid::regclass, pg_get_constraintdef(oid))
    from pg_constraint where connamespace = 'bare'::regnamespace and contype <> 'n'
    union all
    select format('%s index', tablename) from pg_indexes where schemaname = 'bare'
    union all
    select format('%s trigger', tgrelid::regclass)
    from pg_trigger join pg_class on pg_class.oid = tgrelid
    where relnamespace = 'bare'::regnamespace";

/// Reads one text from each row.
async fn read_texts(db: &mut PgConnection, sql: &'static str) -> Vec<String> {
    let rows = sqlx::query_scalar(sql).fetch_all(db).await;
    rows.expect("answers")
}

#[tokio::test]
async fn the_bare_append_is_one_statement_on_three_tables_with_only_primary_keys() {
    let app = TestApp::start().await;
    let mut db = PgConnection::connect(&app.url).await.expect("connects");
    let tables = TABLES.replace(":conversations - 1", "0");
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables))
        .execute(&mut db)
        .await
        .expect("creates the tables");
    let definitions = [
        "bare.conversation PRIMARY KEY (conversation_id)",
        "bare.job PRIMARY KEY (kind, conversation_id)",
        "bare.message PRIMARY KEY (conversation_id, message_id)",
        "conversation index",
        "conversation.conversation_id uuid",
        "conversation.last_message_id bigint",
        "conversation.tenant_id uuid",
        "conversation.token_total bigint",
        "conversation.turn integer",
        "job index",
        "job.conversation_id uuid",
        "job.generation bigint",
        "job.kind smallint",
        "message index",
        "message.content json",
        "message.conversation_id uuid",
        "message.message_id bigint",
        "message.role smallint",
        "message.tenant_id uuid",
        "message.token_estimate integer",
        "message.turn integer",
    ];
    let mut found = read_texts(&mut db, DEFINITIONS).await;
    // The collation of the database does not matter.
    found.sort();
    assert_eq!(found, definitions);

    let lines = APPEND
        .lines()
        .filter(|line| !line.starts_with('\\') && !line.starts_with("--"));
    // pgbench's variables are `:clients`, `:conversations` and this one.
    let append = lines.collect::<Vec<_>>().join("\n");
    let append = append.replace(":conversation)", "'100000000000')");
    assert_eq!(append.matches(';').count(), 1, "one statement");
    for _ in 0..2 {
        sqlx::raw_sql(sqlx::AssertSqlSafe(append.clone()))
            .execute(&mut db)
            .await
            .expect("appends");
    }
    let rows = "
        select format('conversation %s %s %s', last_message_id, turn, token_total) from bare.conversation
        union all
        select format('job %s %s', kind, generation) from bare.job
        union all
        select format('message %s %s %s %s', message_id, role, turn, length(content -> 0 ->> 'text'))
        from bare.message";
    let mut found = read_texts(&mut db, rows).await;
    found.sort();
    let stored = [
        "conversation 2 2 220",
        "job 1 2",
        "message 1 1 1 400",
        "message 2 1 2 400",
    ];
    assert_eq!(found, stored);
}
