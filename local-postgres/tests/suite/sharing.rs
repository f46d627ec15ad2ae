//! Several processes share one cluster: adoption, concurrent starts, leftovers of a killed test
//! run.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{self, Harness, kill, postmaster_pid};
use anneal_local_postgres::{LocalPostgres, LocalPostgresError, Settings};

/// The variable with the folder for the process that [`starter`] runs.
const FOLDER: &str = "ANNEAL_TEST_STARTER_FOLDER";

/// How long an adoption may take. A start takes ten times as long.
const MAX_ADOPTION_TIME: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_second_start_adopts_the_server_within_milliseconds() {
    let harness = Harness::new();
    let first = harness.start().await;
    // The fastest of up to 100 adoptions counts: other tests use the processors at the same time.
    let mut fastest = Duration::MAX;
    let mut tries = 0;
    while fastest >= MAX_ADOPTION_TIME && tries < 100 {
        tries += 1;
        let settings = harness.settings("pg");
        let started = Instant::now();
        let second = LocalPostgres::start(settings).await.unwrap();
        fastest = fastest.min(started.elapsed());
        assert!(second.adopted());
        assert_eq!(second.url("postgres"), first.url("postgres"));
    }
    println!("adopted in {fastest:?}");
    assert!(fastest < MAX_ADOPTION_TIME, "{fastest:?}");
}

#[tokio::test]
async fn a_running_server_is_not_moved_to_another_port() {
    let harness = Harness::new();
    let first = harness.start().await;
    let other_port = Settings {
        port: Some(1),
        ..harness.settings("pg")
    };
    let refusal = LocalPostgres::start(other_port).await.unwrap_err();
    assert!(
        matches!(refusal, LocalPostgresError::OtherPort { running, .. } if running == first.port()),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_starts_starts_and_all_share_the_server() {
    let harness = Harness::new();
    let starters: Vec<_> = (0..8)
        .map(|_| tokio::spawn(LocalPostgres::start(harness.settings("pg"))))
        .collect();
    let mut servers = Vec::new();
    for starter in starters {
        servers.push(starter.await.unwrap().unwrap());
    }
    let _stopped_at_the_end = servers[0].clone().stop_on_drop();
    assert_eq!(servers.iter().filter(|server| !server.adopted()).count(), 1);
    assert!(
        servers
            .iter()
            .all(|server| server.url("a") == servers[0].url("a"))
    );
}

#[tokio::test]
async fn one_of_two_processes_starts_and_both_share_the_server() {
    let harness = Harness::new();
    let starters =
        [starter(&harness), starter(&harness)].map(|mut command| command.spawn().unwrap());
    for mut starter in starters {
        assert!(starter.wait().unwrap().success());
    }
    let postgres = harness.start().await;
    assert!(
        postgres.adopted(),
        "the server ended with the process that started it"
    );
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn the_next_start_adopts_the_server_of_a_killed_starter() {
    let harness = Harness::new();
    let mut command = starter(&harness);
    let mut starter = command
        .env("ANNEAL_TEST_STARTER_STAYS", "1")
        .spawn()
        .unwrap();
    // The starter writes this file when the server accepts connections.
    let version_file = harness.base().join("pg/version");
    while !version_file.exists() {
        assert!(starter.try_wait().unwrap().is_none(), "the starter gave up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    starter.kill().unwrap();
    starter.wait().unwrap();
    let postgres = harness.start().await;
    assert!(postgres.adopted());
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn a_start_removes_a_test_cluster_without_owners_beside_it() {
    let harness = Harness::new();
    let abandoned = harness.start().await;
    let kept = harness.start_with(harness.settings("kept")).await;
    let owners = abandoned.folder().join("owners");
    assert!(fs::read_dir(&owners).unwrap().count() >= 1);
    for owner in fs::read_dir(&owners).unwrap() {
        fs::remove_file(owner.unwrap().path()).unwrap();
    }
    // As after a killed run: the file of a process that has ended.
    let mut ended_process = Command::new("true").spawn().unwrap();
    ended_process.wait().unwrap();
    fs::write(owners.join(format!("{}-1", ended_process.id())), "").unwrap();

    let pid = postmaster_pid(&abandoned);
    let _next = harness.start_with(harness.settings("next")).await;
    assert!(!abandoned.folder().exists());
    assert!(!harness::is_postgres(pid));
    assert_eq!(harness.sql(&kept, "select 1"), "1");
}

#[tokio::test]
async fn one_of_two_concurrent_starts_restarts_a_killed_server() {
    let harness = Harness::new();
    let first = harness.start().await;
    kill(postmaster_pid(&first));
    let (one, two) = tokio::join!(
        LocalPostgres::start(harness.settings("pg")),
        LocalPostgres::start(harness.settings("pg"))
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.adopted(), two.adopted());
    assert_eq!(harness.sql(&two, "select 1"), "1");
}

/// This test program as a new process that runs [`start_in_the_given_folder`].
fn starter(harness: &Harness) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sharing::start_in_the_given_folder", "--ignored"]);
    command.env(FOLDER, harness.base().join("pg"));
    command
}

#[tokio::test]
#[ignore = "not a test: the process that other tests start"]
async fn start_in_the_given_folder() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let postgres = LocalPostgres::start(harness::test_settings(folder.into()))
        .await
        .unwrap();
    println!("{postgres:?}");
    if std::env::var_os("ANNEAL_TEST_STARTER_STAYS").is_some() {
        std::future::pending::<()>().await;
    }
}
