//! The life of a cluster, with the PostgreSQL in ANNEAL_PG_BIN or an installed one.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::harness::{Harness, kill, postmaster_pid};
use anneal_local_postgres::{Durability, LocalPostgres, LocalPostgresError, Settings, Stop};

#[tokio::test]
async fn a_started_server_answers_by_its_url_and_has_a_socket() {
    let harness = Harness::new();
    let postgres = harness.start().await;
    assert_eq!(harness.sql(&postgres, "select 1 + 1"), "2");
    assert_eq!(postgres.version(), harness.binaries.version());
    let version = harness.sql(&postgres, "select current_setting('server_version')");
    assert!(
        version.starts_with(&postgres.version().to_string()),
        "{version}"
    );
    let socket = postgres
        .socket_folder()
        .join(format!(".s.PGSQL.{}", postgres.port()));
    assert!(socket.exists(), "{}", socket.display());
    assert!(
        fs::read_to_string(postgres.log_path())
            .unwrap()
            .contains("ready to accept connections")
    );
}

#[tokio::test]
async fn the_cluster_is_utf8_sorts_by_code_point_has_checksums_and_listens_on_loopback_only() {
    let harness = Harness::new();
    let postgres = harness.start().await;
    assert_eq!(harness.sql(&postgres, "show server_encoding"), "UTF8");
    assert_eq!(harness.sql(&postgres, "show data_checksums"), "on");
    assert_eq!(harness.sql(&postgres, "select 'Z' < 'a'"), "t");
    assert_eq!(harness.sql(&postgres, "show listen_addresses"), "127.0.0.1");
}

#[tokio::test]
async fn only_test_clusters_are_not_durable_and_a_folder_keeps_its_durability() {
    let harness = Harness::new();
    let query = "select string_agg(setting, ',' order by name) from pg_settings \
                 where name in ('fsync', 'full_page_writes', 'synchronous_commit')";
    let test = harness.start().await;
    assert_eq!(harness.sql(&test, query), "off,off,off");
    let durable = harness
        .start_with(Settings {
            durability: Durability::Durable,
            ..harness.settings("durable")
        })
        .await;
    assert_eq!(harness.sql(&durable, query), "on,on,on");

    let other_durability = Settings {
        durability: Durability::Durable,
        ..harness.settings("pg")
    };
    let refusal = LocalPostgres::start(other_durability).await.unwrap_err();
    assert!(
        matches!(refusal, LocalPostgresError::OtherDurability { .. }),
        "{refusal}"
    );
}

#[tokio::test]
async fn further_settings_reach_the_server_and_cannot_open_it_to_the_network() {
    let harness = Harness::new();
    let extra = [("max_connections", "37"), ("listen_addresses", "*")];
    let extra = extra
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let postgres = harness
        .start_with(Settings {
            extra,
            ..harness.settings("pg")
        })
        .await;
    assert_eq!(harness.sql(&postgres, "show max_connections"), "37");
    assert_eq!(harness.sql(&postgres, "show listen_addresses"), "127.0.0.1");
}

#[tokio::test]
async fn a_wrong_password_is_refused_on_tcp_and_on_the_socket() {
    let harness = Harness::new();
    let postgres = harness.start().await;
    let port = postgres.port();
    let by_tcp = format!("postgres://postgres:wrong@127.0.0.1:{port}/postgres");
    let by_socket = format!(
        "host='{}' port={port} user=postgres password=wrong",
        postgres.socket_folder().display()
    );
    for address in [by_tcp, by_socket] {
        let refusal = harness.psql(&address, "select 1").unwrap_err();
        assert!(
            refusal.contains("password authentication failed"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn the_folder_the_log_and_the_password_are_private() {
    let harness = Harness::new();
    let postgres = harness.start().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(postgres.folder()), 0o700);
    assert_eq!(mode(&postgres.folder().join("password")), 0o600);
    assert_eq!(mode(&postgres.log_path()), 0o600);
    assert!(!format!("{:?}", *postgres).contains(postgres.password()));
}

/// A free port below the range from which the system assigns ports.
fn unassigned_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (first..32_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap()
}

#[tokio::test]
async fn data_and_port_survive_a_stop_and_a_start() {
    let harness = Harness::new();
    let first = harness
        .start_with(Settings {
            port: Some(unassigned_port()),
            ..harness.durable_settings()
        })
        .await;
    harness.sql(&first, "create table kept as select 42 as answer");
    for how in [Stop::Smart, Stop::Fast, Stop::Immediate] {
        first.stop(how).await.unwrap();
        first.stop(how).await.unwrap(); // nothing to do, no error
        let restarted = LocalPostgres::start(harness.durable_settings())
            .await
            .unwrap();
        assert!(!restarted.adopted());
        assert_eq!(restarted.port(), first.port());
        assert_eq!(harness.sql(&restarted, "select answer from kept"), "42");
    }
}

#[tokio::test]
async fn a_killed_server_recovers_at_the_next_start() {
    let harness = Harness::new();
    let first = harness.start_with(harness.durable_settings()).await;
    harness.sql(&first, "create table kept as select 42 as answer");
    kill(postmaster_pid(&first));
    let restarted = LocalPostgres::start(harness.durable_settings())
        .await
        .unwrap();
    assert!(!restarted.adopted());
    assert_eq!(harness.sql(&restarted, "select answer from kept"), "42");
}

#[tokio::test]
async fn the_end_of_a_started_and_of_an_adopted_server_is_noticed() {
    let harness = Harness::new();
    let started = harness.start_with(harness.durable_settings()).await;
    let adopted = LocalPostgres::start(harness.durable_settings())
        .await
        .unwrap();
    assert!(adopted.adopted());
    let ends = async { tokio::join!(started.wait_for_end(), adopted.wait_for_end()) };
    let mut ends = std::pin::pin!(ends);
    tokio::select! {
        biased;
        _ = &mut ends => panic!("the server runs"),
        answer = async { harness.sql(&started, "select 1") } => assert_eq!(answer, "1"),
    }
    kill(postmaster_pid(&started));
    let (started, adopted) = ends.await;
    started.and(adopted).unwrap();
}

#[tokio::test]
async fn a_pid_file_with_the_pid_of_another_process_does_not_prevent_a_start() {
    let harness = Harness::new();
    let first = harness.start_with(harness.durable_settings()).await;
    harness.sql(&first, "create table kept as select 42 as answer");
    let pid_file = first.folder().join("data/postmaster.pid");
    let left_behind = fs::read_to_string(&pid_file).unwrap();
    let pid = postmaster_pid(&first).to_string();
    first.stop(Stop::Immediate).await.unwrap();

    // The pid of a process that runs long and that PostgreSQL's user may signal.
    let mut other_process = harness.spawn_sleep(&first);
    fs::write(
        &pid_file,
        left_behind.replacen(&pid, &other_process.id().to_string(), 1),
    )
    .unwrap();
    let restarted = LocalPostgres::start(harness.durable_settings())
        .await
        .unwrap();
    assert_eq!(harness.sql(&restarted, "select answer from kept"), "42");
    assert!(
        other_process.try_wait().unwrap().is_none(),
        "the other process was killed"
    );
    other_process.kill().unwrap();
    other_process.wait().unwrap();
}

#[tokio::test]
async fn an_interrupted_initialization_is_started_again() {
    let harness = Harness::new();
    let folder = harness.base().join("pg");
    fs::create_dir_all(folder.join("data.new/base")).unwrap();
    fs::write(folder.join("anneal-postgres.lock"), "").unwrap();
    fs::write(folder.join("password"), "").unwrap();
    let postgres = harness.start().await;
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn a_path_may_have_spaces_and_quotes() {
    let harness = Harness::new();
    let postgres = harness
        .start_with(harness.settings("a \"quoted\", 'folder' name"))
        .await;
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
    assert!(postgres.socket_folder().starts_with(postgres.folder()));
}

#[tokio::test]
async fn a_folder_with_a_long_path_has_its_socket_in_a_short_path() {
    let harness = Harness::new();
    let deep = format!("{}/pg", "a-folder-with-a-long-name/".repeat(6));
    let postgres = harness.start_with(harness.settings(&deep)).await;
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
    let socket_folder = postgres.socket_folder().to_owned();
    assert!(socket_folder.starts_with("/tmp") && !socket_folder.starts_with(postgres.folder()));
    assert_eq!(fs::metadata(&socket_folder).unwrap().mode() & 0o777, 0o700);
    drop(postgres);
    fs::remove_dir_all(socket_folder).unwrap();
}

#[tokio::test]
async fn a_folder_that_the_user_cannot_enter_gets_a_replacement_and_a_note() {
    let harness = Harness::new();
    let private = harness.base().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let postgres = harness.start_with(harness.settings("private/pg")).await;
    assert_eq!(harness.sql(&postgres, "select 1"), "1");
    let second = LocalPostgres::start(harness.settings("private/pg"))
        .await
        .unwrap();
    assert!(second.adopted());
    // The cluster is moved only if root runs this test. Other users run PostgreSQL themselves.
    let moved = fs::metadata(harness.base()).unwrap().uid() == 0;
    assert_eq!(moved, !postgres.folder().starts_with(harness.base()));
    if moved {
        let note = fs::read_to_string(private.join("pg/POSTGRES-IS-ELSEWHERE.txt")).unwrap();
        let elsewhere = postgres.folder().to_owned();
        assert!(note.contains(elsewhere.to_str().unwrap()), "{note}");
        drop(postgres);
        fs::remove_dir_all(elsewhere).unwrap();
    }
}

#[tokio::test]
async fn a_folder_with_other_files_is_refused() {
    let harness = Harness::new();
    fs::create_dir(harness.base().join("thesis")).unwrap();
    fs::write(harness.base().join("thesis/chapter.txt"), "words").unwrap();
    let refusal = LocalPostgres::start(harness.settings("thesis"))
        .await
        .unwrap_err();
    assert!(
        matches!(refusal, LocalPostgresError::NotOurs(_)),
        "{refusal}"
    );
    assert_eq!(
        fs::read_dir(harness.base().join("thesis")).unwrap().count(),
        1
    );
}

#[tokio::test]
async fn a_taken_port_is_an_error_if_wanted_and_replaced_if_remembered() {
    let harness = Harness::new();
    let first = harness
        .start_with(Settings {
            port: Some(unassigned_port()),
            ..harness.settings("pg")
        })
        .await;
    first.stop(Stop::Fast).await.unwrap();
    let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first.port())).unwrap();
    let with_taken_port = Settings {
        port: Some(first.port()),
        ..harness.settings("pg")
    };
    let refusal = LocalPostgres::start(with_taken_port).await.unwrap_err();
    assert!(
        matches!(refusal, LocalPostgresError::PortTaken(port) if port == first.port()),
        "{refusal}"
    );
    let restarted = LocalPostgres::start(harness.settings("pg")).await.unwrap();
    assert_ne!(restarted.port(), first.port());
}

#[tokio::test]
async fn an_error_contains_the_output_of_postgres() {
    let harness = Harness::new();
    let extra = vec![("shared_buffers".to_owned(), "plenty".to_owned())];
    let refusal = LocalPostgres::start(Settings {
        extra,
        ..harness.settings("pg")
    })
    .await
    .unwrap_err();
    assert!(refusal.to_string().contains("shared_buffers"), "{refusal}");
}
