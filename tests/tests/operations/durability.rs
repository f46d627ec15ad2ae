//! Processes refuse a database that may lose acknowledged data in a crash, unless
//! `database.allow_data_loss` is set.

use anneal_local_postgres::{LocalPostgres, Settings};
use anneal_testkit::{
    AnnealBinary, Folder, OwnPostgres, empty_database, eventually, postgres_binaries,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::BINARY;

/// Each entry: a statement that turns a setting off, the setting's name, the remedy that the error
/// must name, and the statement that turns the setting on again.
const DURABILITY_SETTINGS: [(&str, &str, &str, &str); 6] = [
    (
        "alter system set fsync = off",
        "fsync",
        "`alter system set fsync = on`",
        "alter system reset fsync",
    ),
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

/// The warning of a process that starts although the database may lose data.
const WARNING: &str = "THE DATABASE MAY LOSE WHAT IT ACKNOWLEDGES";

/// Runs a statement and waits until new sessions have this value of a setting.
async fn change_setting(url: &str, statement: &str, (setting, value): (&str, &str)) {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the database answers");
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement)
        .execute(&mut db)
        .await
        .expect("changes the setting");
    sqlx::raw_sql("select pg_reload_conf()")
        .execute(&mut db)
        .await
        .expect("reads the settings again");
    eventually("the setting holds in new sessions", async || {
        let mut db = PgConnection::connect(url)
            .await
            .expect("the database answers");
        let query = sqlx::query_scalar("select current_setting($1)").bind(setting);
        let current: String = query.fetch_one(&mut db).await.expect("answers");
        current == value
    })
    .await;
}

/// Starts server and worker, which must succeed, and stops them. Returns their log lines.
async fn assert_starts(anneal: &AnnealBinary) -> Vec<String> {
    let (server, _) = anneal.server().await;
    let worker = anneal.worker().await;
    let lines = [server.lines(), worker.lines()].concat();
    for process in [server, worker] {
        process.terminate().await;
        assert_eq!(process.wait_for_exit().await, Some(0));
    }
    lines
}

/// Asserts that neither server nor worker starts and that the error contains each of `phrases`.
async fn assert_refuses_start(folder: &Folder, url: &str, phrases: &[&str]) {
    let anneal = AnnealBinary::on_durable(BINARY, folder, url);
    for command in ["server", "worker"] {
        let process = anneal.start(&[command]);
        let error = process.wait_for_line("set database.allow_data_loss").await;
        for phrase in phrases {
            assert!(error.contains(phrase), "{command}: {error} lacks {phrase}");
        }
        assert_eq!(process.wait_for_exit().await, Some(1), "{command}");
    }
}

#[tokio::test]
async fn a_database_with_a_durability_setting_off_is_refused_wherever_it_is_set() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &postgres.url);
    for (off, setting, remedy, on) in DURABILITY_SETTINGS {
        change_setting(&postgres.url, off, (setting, "off")).await;
        assert_refuses_start(
            &folder,
            &postgres.url,
            &[&format!("{setting} is off"), remedy],
        )
        .await;
        change_setting(&postgres.url, on, (setting, "on")).await;
    }
    let weak_url = format!("{}?options=-c%20synchronous_commit%3Doff", postgres.url);
    assert_refuses_start(
        &folder,
        &weak_url,
        &["synchronous_commit is off", "options in database.url"],
    )
    .await;
    let lines = assert_starts(&anneal).await;
    assert!(
        !lines.iter().any(|line| line.contains(WARNING)),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn every_kind_of_commit_that_reaches_the_disk_is_accepted() {
    let (postgres, folder) = (OwnPostgres::start().await, Folder::new());
    for value in ["local", "remote_write", "on", "remote_apply"] {
        let set = format!("alter role postgres set synchronous_commit = {value}");
        change_setting(&postgres.url, &set, ("synchronous_commit", value)).await;
        assert_starts(&AnnealBinary::on_durable(BINARY, &folder, &postgres.url)).await;
    }
}

#[tokio::test]
async fn with_allow_data_loss_processes_start_and_warn_of_every_setting() {
    let (folder, url) = (Folder::new(), empty_database().await);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, &url);
    assert_eq!(anneal.run(&["migrate"]).await.code, Some(0));
    // The test cluster turns all three off on its command line.
    let all_off = "fsync is off, full_page_writes is off, synchronous_commit is off";
    assert_refuses_start(&folder, &url, &[all_off, "on its command line"]).await;
    // Unlike `on_durable`, `new` sets `database.allow_data_loss`.
    let lines = assert_starts(&AnnealBinary::new(BINARY, &folder, &url)).await;
    let warnings: Vec<&String> = lines.iter().filter(|line| line.contains(WARNING)).collect();
    assert_eq!(
        warnings.len(),
        2,
        "server and worker warn once each: {lines:#?}"
    );
    assert!(
        warnings.iter().all(|line| line.contains(all_off)),
        "{warnings:#?}"
    );
}

#[tokio::test]
async fn dev_refuses_a_role_that_does_not_wait_for_the_disk() {
    let folder = Folder::new();
    let settings = Settings::new(folder.path().join(".anneal/postgres"), postgres_binaries());
    let postgres = LocalPostgres::start(settings.clone())
        .await
        .expect("a cluster of the test's own");
    let (off, setting) = (
        "alter role postgres set synchronous_commit = off",
        "synchronous_commit",
    );
    change_setting(&postgres.url("postgres"), off, (setting, "off")).await;
    folder.file(
        "talk.jsonl",
        r#"{"role": "user", "content": "Is anybody there?"}"#,
    );
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let dev = ["dev", "--once", "--import", "talk.jsonl"];
    let refused = anneal.run(&dev).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.err.contains("synchronous_commit is off"),
        "{refused:?}"
    );
    let allowed = anneal
        .run(&[&dev[..], &["--set", "database.allow_data_loss=true"]].concat())
        .await;
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(allowed.err.contains(WARNING), "{allowed:?}");
    let restarted = LocalPostgres::start(settings)
        .await
        .expect("starts again")
        .stop_on_drop();
    assert!(
        !restarted.adopted(),
        "dev has stopped its PostgreSQL in both runs"
    );
}
