//! Many processes, one cluster: adoption, starters at once, what a killed test run leaves behind.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anneal_local_postgres::{LocalPostgres, LocalPostgresError, Settings};
use bench::{Bench, kill, postmaster_pid};

/// Names the folder for the process that [`starter`] starts.
const FOLDER: &str = "ANNEAL_TEST_STARTER_FOLDER";

/// What an adoption takes at most where nothing else is in its way; a start takes ten times as long.
const MILLISECONDS: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_second_start_adopts_the_server_within_milliseconds() {
    let bench = Bench::new();
    let first = bench.start().await;
    let mut fastest = Duration::MAX;
    let mut tries = 0;
    while fastest >= MILLISECONDS && tries < 100 {
        tries += 1;
        let settings = bench.settings("pg");
        let started = Instant::now();
        let second = LocalPostgres::start(settings).await.unwrap();
        fastest = fastest.min(started.elapsed());
        assert!(second.adopted());
        assert_eq!(second.url("postgres"), first.url("postgres"));
    }
    println!("adopted in {fastest:?}");
    assert!(fastest < MILLISECONDS, "{fastest:?}");
}

#[tokio::test]
async fn a_running_server_is_not_moved_to_another_port() {
    let bench = Bench::new();
    let first = bench.start().await;
    let elsewhere = Settings { port: Some(1), ..bench.settings("pg") };
    let refusal = LocalPostgres::start(elsewhere).await.unwrap_err();
    assert!(matches!(refusal, LocalPostgresError::OtherPort { running, .. } if running == first.port()), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_starters_at_once_one_starts_and_all_share() {
    let bench = Bench::new();
    let starters: Vec<_> = (0..8).map(|_| tokio::spawn(LocalPostgres::start(bench.settings("pg")))).collect();
    let mut servers = Vec::new();
    for starter in starters {
        servers.push(starter.await.unwrap().unwrap());
    }
    let _stopped_at_the_end = servers[0].clone().stop_on_drop();
    assert_eq!(servers.iter().filter(|server| !server.adopted()).count(), 1);
    assert!(servers.iter().all(|server| server.url("a") == servers[0].url("a")));
}

#[tokio::test]
async fn of_two_processes_at_once_one_starts_and_both_share() {
    let bench = Bench::new();
    let starters = [starter(&bench), starter(&bench)].map(|mut command| command.spawn().unwrap());
    for mut starter in starters {
        assert!(starter.wait().unwrap().success());
    }
    let postgres = bench.start().await;
    assert!(postgres.adopted(), "it outlives the processes that started it");
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn a_killed_starter_leaves_a_server_that_the_next_one_adopts() {
    let bench = Bench::new();
    let mut command = starter(&bench);
    let mut starter = command.env("ANNEAL_TEST_STARTER_STAYS", "1").spawn().unwrap();
    let pid_file = bench.base().join("pg/version");
    while !pid_file.exists() {
        assert!(starter.try_wait().unwrap().is_none(), "the starter gave up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    starter.kill().unwrap();
    starter.wait().unwrap();
    let postgres = bench.start().await;
    assert!(postgres.adopted());
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn a_test_cluster_whose_users_are_gone_is_removed_by_the_next_one_beside_it() {
    let bench = Bench::new();
    let abandoned = bench.start().await;
    let kept = bench.start_with(bench.settings("kept")).await;
    let owners = abandoned.folder().join("owners");
    assert!(fs::read_dir(&owners).unwrap().count() >= 1);
    for owner in fs::read_dir(&owners).unwrap() {
        fs::remove_file(owner.unwrap().path()).unwrap();
    }
    // As a killed run would leave it: the file of a process that is no more.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    fs::write(owners.join(format!("{}-1", gone.id())), "").unwrap();

    let pid = postmaster_pid(&abandoned);
    let _next = bench.start_with(bench.settings("next")).await;
    assert!(!abandoned.folder().exists());
    assert!(!bench::is_postgres(pid));
    assert_eq!(bench.sql(&kept, "select 1"), "1");
}

#[tokio::test]
async fn a_killed_server_is_started_by_one_of_many_at_once() {
    let bench = Bench::new();
    let first = bench.start().await;
    kill(postmaster_pid(&first));
    let (one, two) =
        tokio::join!(LocalPostgres::start(bench.settings("pg")), LocalPostgres::start(bench.settings("pg")));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.adopted(), two.adopted());
    assert_eq!(bench.sql(&two, "select 1"), "1");
}

/// This test program again, as a process of its own that runs [`starts_where_it_is_told`].
fn starter(bench: &Bench) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "starts_where_it_is_told", "--ignored"]);
    command.env(FOLDER, bench.base().join("pg"));
    command
}

#[tokio::test]
#[ignore = "not a test: the process that other tests start"]
async fn starts_where_it_is_told() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let postgres = LocalPostgres::start(bench::test_settings(folder.into())).await.unwrap();
    println!("{postgres:?}");
    if std::env::var_os("ANNEAL_TEST_STARTER_STAYS").is_some() {
        std::future::pending::<()>().await;
    }
}
