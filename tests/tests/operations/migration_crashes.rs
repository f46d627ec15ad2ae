//! `anneal migrate` is interrupted at every statement that changes the schema, and at every commit.
//! The schema is then exactly that of the applied migrations, and the next run continues from
//! there.

use std::time::Duration;

use anneal_store::{Migrations, MigrationsError, StoreSettings};
use anneal_testkit::{AnnealBinary, Folder, chaos::Proxy, empty_database, eventually};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::BINARY;

/// An event trigger that interrupts one command of an attempt to migrate: the n-th that changes the
/// schema. The command fails, fails as in a deadlock, its session dies, or it waits for advisory
/// lock 7. The row of the
/// table `breaking.interruption` has n (0: no command is interrupted) and the effect.
const INTERRUPTER: &str = "
    create schema breaking;
    create table breaking.interruption (command bigint, effect text);
    insert into breaking.interruption values (0, '');
    create sequence breaking.commands;
    create function breaking.interrupt() returns event_trigger language plpgsql set lock_timeout = 0 as $$
    declare interruption breaking.interruption;
    begin
        select * into interruption from breaking.interruption;
        -- A sequence keeps its value when a transaction is rolled back.
        if nextval('breaking.commands') <> interruption.command then return; end if;
        case interruption.effect
            when 'fails' then raise exception 'this statement fails';
            when 'deadlocks' then raise deadlock_detected;
            when 'dies' then perform pg_terminate_backend(pg_backend_pid());
            when 'waits' then perform pg_advisory_xact_lock_shared(7);
        end case;
    end $$;
    create event trigger breaking on ddl_command_end execute function breaking.interrupt()";

/// Fewer than the commands of all migrations. A lower number of interruptions would show that the
/// event trigger misses commands.
const MIN_INTERRUPTIONS: u32 = 80;

/// Every object that migrations create, one per line, without the table of applied migrations.
const SCHEMA: &str = "
    select string_agg(line, e'\n' order by line) from (
        select format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            pg_get_expr(d.adbin, d.adrelid)) as line
        from pg_class as c join pg_attribute as a on a.attrelid = c.oid
        left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
        union all
        select format('relation %s %s %s %s %s', relname, relkind, relrowsecurity, relacl, reloptions) from pg_class
        where relnamespace = 'public'::regnamespace
        union all
        select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
        where connamespace = 'public'::regnamespace
        union all
        select indexdef from pg_indexes where schemaname = 'public'
        union all
        select format('policy %s %s %s %s', tablename, policyname, qual, with_check) from pg_policies
        union all
        select format('function %s %s', p.oid::regprocedure, prosrc) from pg_proc as p
        where pronamespace = 'public'::regnamespace
        union all
        select format('trigger %s %s', tgrelid::regclass, pg_get_triggerdef(oid)) from pg_trigger where not tgisinternal
        union all
        select format('statistics %s', pg_get_statisticsobjdef(oid)) from pg_statistic_ext
    ) as lines
    where line not like '%_sqlx_migrations%'";

async fn run(db: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(db)
        .await
        .expect("runs");
}

/// Reads [`SCHEMA`].
async fn read_schema(db: &mut PgConnection) -> String {
    let schema: Option<String> = sqlx::query_scalar(AssertSqlSafe(SCHEMA))
        .fetch_one(db)
        .await
        .expect("the query succeeds");
    schema.unwrap_or_default()
}

/// The schema after 0 applied migrations, after 1, and so on.
async fn schemas_by_migrations() -> Vec<String> {
    let mut db = PgConnection::connect(&empty_database().await)
        .await
        .expect("connects");
    // The table of applied migrations exists before the first migration, because one of them grants
    // access to it.
    run(&mut db, "create table _sqlx_migrations ()").await;
    let mut schemas = vec![read_schema(&mut db).await];
    for migration in Migrations::all() {
        run(&mut db, &migration.sql).await;
        schemas.push(read_schema(&mut db).await);
    }
    schemas
}

/// A database whose migration is interrupted.
struct InterruptedMigration {
    url: String,
    db: PgConnection,
    /// See [`schemas_by_migrations`].
    schemas: Vec<String>,
}

impl InterruptedMigration {
    async fn new() -> Self {
        let url = empty_database().await;
        let mut db = PgConnection::connect(&url).await.expect("connects");
        run(&mut db, INTERRUPTER).await;
        Self {
            url,
            db,
            schemas: schemas_by_migrations().await,
        }
    }

    /// Makes the next attempt to migrate end or wait at this command, counted from 1. `effect` is
    /// `fails`, `deadlocks`, `dies` or `waits`.
    async fn interrupt_at(&mut self, command: u32, effect: &str) {
        let update = format!(
            "update breaking.interruption set command = {command}, effect = '{effect}'; select setval('breaking.commands', 1, false)"
        );
        run(&mut self.db, &update).await;
    }

    /// Counts the applied migrations. Asserts that the schema is exactly what they make.
    async fn count_migrations(&mut self) -> usize {
        let table: Option<String> =
            sqlx::query_scalar("select to_regclass('public._sqlx_migrations')::text")
                .fetch_one(&mut self.db)
                .await
                .expect("the query succeeds");
        let applied: Vec<(i64, bool)> = match table {
            None => Vec::new(),
            Some(_) => {
                sqlx::query_as("select version, success from _sqlx_migrations order by version")
                    .fetch_all(&mut self.db)
                    .await
                    .expect("the query succeeds")
            }
        };
        assert!(applied.iter().all(|(_, success)| *success), "{applied:?}");
        let expected = Migrations::all()
            .into_iter()
            .map(|migration| migration.version)
            .take(applied.len());
        assert!(
            applied.iter().map(|(version, _)| *version).eq(expected),
            "{applied:?}"
        );
        let actual = read_schema(&mut self.db).await;
        assert!(
            actual == self.schemas[applied.len()],
            "migration {} is applied in part:\n{actual}",
            applied.len() + 1
        );
        applied.len()
    }

    fn is_complete(&self, applied: usize) -> bool {
        applied + 1 == self.schemas.len()
    }
}

async fn migrate(url: &str) -> Result<(), MigrationsError> {
    let mut migrations = Migrations::connect(&StoreSettings::at(url)).await?;
    migrations.run(Duration::from_secs(30)).await.map(|_| ())
}

/// Interrupts one attempt to migrate at each command in turn, until an attempt succeeds. Returns
/// the number of interruptions.
async fn interrupt_each(effect: &str) -> u32 {
    let mut database = InterruptedMigration::new().await;
    let (mut applied, mut command, mut interruptions) = (0, 1, 0);
    loop {
        database.interrupt_at(command, effect).await;
        let outcome = migrate(&database.url).await;
        let before = std::mem::replace(&mut applied, database.count_migrations().await);
        if outcome.is_ok() {
            assert!(
                database.is_complete(applied),
                "the migration reports success after only {applied} migrations"
            );
            return interruptions;
        }
        interruptions += 1;
        // An attempt starts with the first command of the first migration that is not applied.
        command = if applied > before { 1 } else { command + 1 };
    }
}

#[tokio::test]
async fn a_changed_text_of_an_applied_migration_is_named_as_the_reason() {
    let url = empty_database().await;
    migrate(&url).await.expect("migrates");
    let mut db = PgConnection::connect(&url).await.expect("connects");
    let change = "update _sqlx_migrations set checksum = '' where version = (select min(version) from _sqlx_migrations)";
    run(&mut db, change).await;
    let refused = migrate(&url).await.expect_err("the text has changed");
    assert_eq!(
        refused.to_string(),
        "the text of an applied migration has changed"
    );
}

#[tokio::test]
async fn a_failed_statement_leaves_no_partial_migration() {
    let interruptions = interrupt_each("fails").await;
    println!("{interruptions} statements failed");
    assert!(interruptions >= MIN_INTERRUPTIONS, "{interruptions}");
}

#[tokio::test]
async fn a_migration_that_was_in_a_deadlock_is_tried_again() {
    let mut database = InterruptedMigration::new().await;
    database.interrupt_at(30, "deadlocks").await;
    migrate(&database.url)
        .await
        .expect("the next attempt is not interrupted");
    let applied = database.count_migrations().await;
    assert!(database.is_complete(applied), "{applied}");
}

#[tokio::test]
async fn a_connection_lost_within_a_statement_leaves_no_partial_migration() {
    let interruptions = interrupt_each("dies").await;
    println!("connections died in {interruptions} statements");
    assert!(interruptions >= MIN_INTERRUPTIONS, "{interruptions}");
}

#[tokio::test]
async fn a_connection_cut_at_any_commit_leaves_no_partial_migration() {
    let mut database = InterruptedMigration::new().await;
    let port = database
        .url
        .split("@127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .expect("a port");
    let proxy = Proxy::start(port.parse().expect("a port"), 20_261_122).await;
    let proxy_url = database
        .url
        .replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    // Every commit is cut, and none is delayed.
    proxy.disturb(1_000, 0);
    let mut cut_attempts = 0;
    while migrate(&proxy_url).await.is_err() {
        database.count_migrations().await;
        cut_attempts += 1;
        assert!(cut_attempts < 500, "no progress");
    }
    let applied = database.count_migrations().await;
    assert!(database.is_complete(applied), "{applied}");
    // Each migration is applied by one commit that was cut after its execution.
    let commits = proxy.commits();
    println!("{cut_attempts} attempts were cut: {commits:?}");
    assert!(
        commits.cut_before >= 5 && commits.cut_after as usize + 1 == database.schemas.len(),
        "{commits:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_migrator_finishes_after_the_first_is_killed_within_a_migration() {
    let folder = Folder::new();
    for command in [2, 30, 60] {
        let mut database = InterruptedMigration::new().await;
        database.interrupt_at(command, "waits").await;
        run(&mut database.db, "select pg_advisory_lock(7)").await;
        let anneal = AnnealBinary::new(BINARY, &folder, &database.url);
        let first = anneal.start(&["migrate"]);
        eventually("the first migrator waits within a migration", async || {
            let waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted
                and database = (select oid from pg_database where datname = current_database())";
            sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut database.db).await.expect("the query succeeds") == 1
        })
        .await;
        let second = {
            let anneal = anneal.clone();
            tokio::spawn(async move { anneal.run(&["migrate"]).await })
        };
        // Before the kill: after it, the second one may change the schema while it is read.
        let applied = database.count_migrations().await;
        assert!(
            !database.is_complete(applied),
            "the first migrator is killed before its last migration"
        );
        first.kill().await;
        run(&mut database.db, "select pg_advisory_unlock(7)").await;
        let second = second.await.expect("ends");
        assert_eq!(second.code, Some(0), "{second:?}");
        let applied = database.count_migrations().await;
        assert!(database.is_complete(applied), "{applied}");
    }
}
