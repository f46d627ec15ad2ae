//! `anneal migrate` is broken off at every statement and every commit of every migration: what stands then is what some first
//! migrations make, no more and no less, and the next run goes on from there.

use std::time::Duration;

use anneal_store::{Migrations, MigrationsError, StoreSettings};
use anneal_tests::{Anneal, Folder, chaos::Proxy, empty_database, eventually};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::BINARY;

/// What happens at one command of a migration: the n-th that an attempt comes to.
const BREAKS: &str = "
    create schema breaking;
    create table breaking.place (at bigint, how text);
    insert into breaking.place values (0, '');
    create sequence breaking.commands;
    create function breaking.here() returns event_trigger language plpgsql set lock_timeout = 0 as $$
    declare asked breaking.place;
    begin
        select * into asked from breaking.place;
        -- A sequence forgets nothing when a transaction is rolled back.
        if nextval('breaking.commands') <> asked.at then return; end if;
        case asked.how
            when 'fails' then raise exception 'this statement fails';
            when 'dies' then perform pg_terminate_backend(pg_backend_pid());
            when 'waits' then perform pg_advisory_xact_lock_shared(7);
        end case;
    end $$;
    create event trigger breaking on ddl_command_end execute function breaking.here()";

/// Everything that migrations make, a line each; the ledger is asked for by itself.
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
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.expect("runs");
}

async fn schema(db: &mut PgConnection) -> String {
    let schema: Option<String> = sqlx::query_scalar(AssertSqlSafe(SCHEMA)).fetch_one(db).await.expect("asks");
    schema.unwrap_or_default()
}

/// The schema after so many migrations, each run at once: the first is that of none.
async fn prefixes() -> Vec<String> {
    let mut db = PgConnection::connect(&empty_database().await).await.expect("connects");
    // The ledger is there before the first, and one of them grants it.
    run(&mut db, "create table _sqlx_migrations ()").await;
    let mut schemas = vec![schema(&mut db).await];
    for migration in Migrations::all() {
        run(&mut db, &migration.sql).await;
        schemas.push(schema(&mut db).await);
    }
    schemas
}

/// A database whose migration is broken off.
struct Broken {
    url: String,
    db: PgConnection,
    schemas: Vec<String>,
}

impl Broken {
    async fn new() -> Self {
        let url = empty_database().await;
        let mut db = PgConnection::connect(&url).await.expect("connects");
        run(&mut db, BREAKS).await;
        Self { url, db, schemas: prefixes().await }
    }

    /// The next attempt is broken off at this command.
    async fn at(&mut self, command: u32, how: &str) {
        let place = format!(
            "update breaking.place set at = {command}, how = '{how}'; select setval('breaking.commands', 1, false)"
        );
        run(&mut self.db, &place).await;
    }

    /// How many migrations have run, by the ledger; and the schema is theirs.
    async fn applied(&mut self) -> usize {
        let ledger: Option<String> = sqlx::query_scalar("select to_regclass('public._sqlx_migrations')::text")
            .fetch_one(&mut self.db)
            .await
            .expect("asks");
        let applied: Vec<(i64, bool)> = match ledger {
            None => Vec::new(),
            Some(_) => sqlx::query_as("select version, success from _sqlx_migrations order by version")
                .fetch_all(&mut self.db)
                .await
                .expect("asks"),
        };
        assert!(applied.iter().all(|(_, success)| *success), "{applied:?}");
        let first = Migrations::all().into_iter().map(|migration| migration.version).take(applied.len());
        assert!(applied.iter().map(|(version, _)| *version).eq(first), "{applied:?}");
        let stands = schema(&mut self.db).await;
        assert!(stands == self.schemas[applied.len()], "half of migration {} stands:\n{stands}", applied.len() + 1);
        applied.len()
    }

    fn is_whole(&self, applied: usize) -> bool {
        applied + 1 == self.schemas.len()
    }
}

async fn attempt(url: &str) -> Result<(), MigrationsError> {
    let mut migrations = Migrations::connect(&StoreSettings::at(url)).await?;
    migrations.run(Duration::from_secs(30)).await.map(|_| ())
}

/// Breaks each command in turn, until nothing is left to break; how many were.
async fn break_each(how: &str) -> u32 {
    let mut broken = Broken::new().await;
    let (mut applied, mut command, mut breaks) = (0, 1, 0);
    loop {
        broken.at(command, how).await;
        let outcome = attempt(&broken.url).await;
        let before = std::mem::replace(&mut applied, broken.applied().await);
        if outcome.is_ok() {
            assert!(broken.is_whole(applied), "it says that it has done what it has not: {applied}");
            return breaks;
        }
        breaks += 1;
        // Behind a migration that ran through, the next begins with its first command.
        command = if applied > before { 1 } else { command + 1 };
    }
}

#[tokio::test]
async fn a_statement_that_fails_leaves_no_half_of_a_migration() {
    let breaks = break_each("fails").await;
    println!("{breaks} statements failed");
    assert!(breaks >= 80, "{breaks}");
}

#[tokio::test]
async fn a_connection_that_dies_within_a_statement_leaves_no_half_of_a_migration() {
    let breaks = break_each("dies").await;
    println!("connections died in {breaks} statements");
    assert!(breaks >= 80, "{breaks}");
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_commit_leaves_no_half_of_a_migration() {
    let mut broken = Broken::new().await;
    let port = broken.url.split("@127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).expect("a port");
    let proxy = Proxy::to(port.parse().expect("a port"), 20_261_122).await;
    let through = broken.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port()));
    proxy.disturb(1_000, 0);
    let mut cut = 0;
    while attempt(&through).await.is_err() {
        broken.applied().await;
        cut += 1;
        assert!(cut < 500, "it does not get on");
    }
    let applied = broken.applied().await;
    assert!(broken.is_whole(applied), "{applied}");
    let commits = proxy.commits();
    println!("{cut} attempts were cut: {commits:?}");
    assert!(commits.cut_before >= 5 && commits.cut_after as usize + 1 == broken.schemas.len(), "{commits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_migrators_the_other_ends_what_one_has_begun_that_is_killed_within_a_migration() {
    let folder = Folder::new();
    for command in [2, 30, 60] {
        let mut broken = Broken::new().await;
        broken.at(command, "waits").await;
        run(&mut broken.db, "select pg_advisory_lock(7)").await;
        let anneal = Anneal::new(BINARY, &folder, &broken.url);
        let first = anneal.start(&["migrate"]);
        eventually("the first is in the middle", async || {
            let waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted
                and database = (select oid from pg_database where datname = current_database())";
            sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut broken.db).await.expect("asks") == 1
        })
        .await;
        let second = {
            let anneal = anneal.clone();
            tokio::spawn(async move { anneal.run(&["migrate"]).await })
        };
        first.kill().await;
        let begun = broken.applied().await;
        assert!(!broken.is_whole(begun), "it was killed in the middle");
        run(&mut broken.db, "select pg_advisory_unlock(7)").await;
        let second = second.await.expect("ends");
        assert_eq!(second.code, Some(0), "{second:?}");
        let applied = broken.applied().await;
        assert!(broken.is_whole(applied), "{applied}");
    }
}
