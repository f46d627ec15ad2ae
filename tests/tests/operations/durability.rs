//! No process works on a database that may lose in a crash what it has acknowledged, unless it is told that it may.

use anneal_local_postgres::{LocalPostgres, Settings};
use anneal_tests::{Anneal, Folder, OwnPostgres, empty_database, eventually, postgres_binaries};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::BINARY;

/// How a setting is turned off, which one, the remedy that is named, and how it is turned on again.
const OFF: [(&str, &str, &str, &str); 6] = [
    ("alter system set fsync = off", "fsync", "`alter system set fsync = on`", "alter system reset fsync"),
    (
        "alter system set full_page_writes = off",
        "full_page_writes",
        "`alter system set full_page_writes = on`",
        "alter system reset full_page_writes",
    ),
    (
        "alter system set synchronous_commit = off",
        "synchronous_commit",
        "`alter system set synchronous_commit = on`",
        "alter system reset synchronous_commit",
    ),
    (
        "alter role postgres set synchronous_commit = off",
        "synchronous_commit",
        "`alter role … reset synchronous_commit`",
        "alter role postgres reset synchronous_commit",
    ),
    (
        "alter database anneal set synchronous_commit = off",
        "synchronous_commit",
        "`alter database … reset synchronous_commit`",
        "alter database anneal reset synchronous_commit",
    ),
    (
        "alter role postgres in database anneal set synchronous_commit = off",
        "synchronous_commit",
        "`alter role … in database … reset synchronous_commit`",
        "alter role postgres in database anneal reset synchronous_commit",
    ),
];

const WARNING: &str = "THE DATABASE MAY LOSE WHAT IT ACKNOWLEDGES";

/// Runs a statement, and waits until new sessions have this value of a setting.
async fn change(url: &str, statement: &str, (setting, value): (&str, &str)) {
    let mut db = PgConnection::connect(url).await.expect("the database answers");
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut db).await.expect("changes the setting");
    sqlx::raw_sql("select pg_reload_conf()").execute(&mut db).await.expect("reads the settings again");
    eventually("the setting holds in new sessions", async || {
        let mut db = PgConnection::connect(url).await.expect("the database answers");
        let asked = sqlx::query_scalar("select current_setting($1)").bind(setting);
        let holds: String = asked.fetch_one(&mut db).await.expect("answers");
        holds == value
    })
    .await;
}

/// Asserts that server and worker start there, and returns everything that they said.
async fn assert_starts(anneal: &Anneal) -> Vec<String> {
    let (server, _) = anneal.server().await;
    let worker = anneal.worker().await;
    let said = [server.lines(), worker.lines()].concat();
    for process in [server, worker] {
        process.terminate().await;
        assert_eq!(process.ended().await, Some(0));
    }
    said
}

/// Asserts that nothing starts there without the allowance, and that the sentence names all this.
async fn assert_refused(folder: &Folder, url: &str, names: &[&str]) {
    let strict = Anneal::on_durable(BINARY, folder, url);
    for command in ["server", "worker"] {
        let process = strict.start(&[command]);
        let said = process.said("set database.allow_data_loss").await;
        for name in names {
            assert!(said.contains(name), "{command}: {said} lacks {name}");
        }
        assert_eq!(process.ended().await, Some(1), "{command}");
    }
}

#[tokio::test]
async fn a_database_with_one_of_its_safeties_off_is_refused_wherever_it_was_turned_off() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let strict = Anneal::on_durable(BINARY, &folder, &postgres.url);
    for (off, setting, remedy, on) in OFF {
        change(&postgres.url, off, (setting, "off")).await;
        assert_refused(&folder, &postgres.url, &[&format!("{setting} is off"), remedy]).await;
        change(&postgres.url, on, (setting, "on")).await;
    }
    let weak_url = format!("{}?options=-c%20synchronous_commit%3Doff", postgres.url);
    assert_refused(&folder, &weak_url, &["synchronous_commit is off", "options in database.url"]).await;
    let said = assert_starts(&strict).await;
    assert!(!said.iter().any(|line| line.contains(WARNING)), "{said:#?}");
}

#[tokio::test]
async fn every_kind_of_commit_that_reaches_the_disk_is_accepted() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    for value in ["local", "remote_write", "on", "remote_apply"] {
        let set = format!("alter role postgres set synchronous_commit = {value}");
        change(&postgres.url, &set, ("synchronous_commit", value)).await;
        assert_starts(&Anneal::on_durable(BINARY, &folder, &postgres.url)).await;
    }
}

#[tokio::test]
async fn where_data_may_be_lost_processes_start_and_warn_of_all_that_is_off() {
    let (folder, url) = (Folder::new(), empty_database().await);
    let anneal = Anneal::on_durable(BINARY, &folder, &url);
    assert_eq!(anneal.run(&["migrate"]).await.code, Some(0));
    let all = "fsync is off, full_page_writes is off, synchronous_commit is off";
    assert_refused(&folder, &url, &[all, "on its command line"]).await;
    let said = assert_starts(&Anneal::new(BINARY, &folder, &url)).await;
    let warnings: Vec<&String> = said.iter().filter(|line| line.contains(WARNING)).collect();
    assert_eq!(warnings.len(), 2, "server and worker warn once each: {said:#?}");
    assert!(warnings.iter().all(|line| line.contains(all)), "{warnings:#?}");
}

#[tokio::test]
async fn dev_refuses_a_role_that_does_not_wait_for_the_disk() {
    let folder = Folder::new();
    let settings = Settings::new(folder.path().join(".anneal/postgres"), postgres_binaries());
    let postgres = LocalPostgres::start(settings.clone()).await.expect("a cluster of the test's own");
    let (off, setting) = ("alter role postgres set synchronous_commit = off", "synchronous_commit");
    change(&postgres.url("postgres"), off, (setting, "off")).await;
    folder.file("talk.jsonl", r#"{"role": "user", "content": "Is anybody there?"}"#);
    let anneal = Anneal::on_durable(BINARY, &folder, "");
    let dev = ["dev", "--once", "--import", "talk.jsonl"];
    let refused = anneal.run(&dev).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("synchronous_commit is off"), "{refused:?}");
    let allowed = anneal.run(&[&dev[..], &["--set", "database.allow_data_loss=true"]].concat()).await;
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(allowed.err.contains(WARNING), "{allowed:?}");
    let left = LocalPostgres::start(settings).await.expect("starts again").stop_on_drop();
    assert!(!left.adopted(), "dev has stopped its PostgreSQL, also where it refused it");
}
