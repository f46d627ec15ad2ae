//! A cluster's life, with the PostgreSQL that ANNEAL_PG_BIN names or that is installed.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anneal_local_postgres::{Durability, LocalPostgres, LocalPostgresError, Settings, Stop};
use bench::{Bench, kill, postmaster_pid};

#[tokio::test]
async fn a_started_server_answers_by_its_url_and_by_its_socket() {
    let bench = Bench::new();
    let postgres = bench.start().await;
    assert_eq!(bench.sql(&postgres, "select 1 + 1"), "2");
    assert_eq!(postgres.version(), bench.binaries.version());
    let shown = bench.sql(&postgres, "select current_setting('server_version')");
    assert!(shown.starts_with(&postgres.version().to_string()), "{shown}");
    let socket = postgres.socket_folder().join(format!(".s.PGSQL.{}", postgres.port()));
    assert!(socket.exists(), "{}", socket.display());
    assert!(fs::read_to_string(postgres.log_path()).unwrap().contains("ready to accept connections"));
}

#[tokio::test]
async fn the_cluster_is_utf8_sorts_by_code_point_and_has_checksums() {
    let bench = Bench::new();
    let postgres = bench.start().await;
    assert_eq!(bench.sql(&postgres, "show server_encoding"), "UTF8");
    assert_eq!(bench.sql(&postgres, "show data_checksums"), "on");
    assert_eq!(bench.sql(&postgres, "select 'Z' < 'a'"), "t");
    assert_eq!(bench.sql(&postgres, "show listen_addresses"), "127.0.0.1");
}

#[tokio::test]
async fn only_the_test_kind_gives_up_durability() {
    let bench = Bench::new();
    let asked = "select string_agg(setting, ',' order by name) from pg_settings \
                 where name in ('fsync', 'full_page_writes', 'synchronous_commit')";
    let test = bench.start().await;
    assert_eq!(bench.sql(&test, asked), "off,off,off");
    let durable = bench.start_with(Settings { durability: Durability::Durable, ..bench.settings("durable") }).await;
    assert_eq!(bench.sql(&durable, asked), "on,on,on");

    let mixed_up = Settings { durability: Durability::Durable, ..bench.settings("pg") };
    let refusal = LocalPostgres::start(mixed_up).await.unwrap_err();
    assert!(matches!(refusal, LocalPostgresError::OtherDurability { .. }), "{refusal}");
}

#[tokio::test]
async fn further_settings_reach_the_server_and_cannot_open_it_to_the_network() {
    let bench = Bench::new();
    let extra = [("max_connections", "37"), ("listen_addresses", "*")];
    let extra = extra.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let postgres = bench.start_with(Settings { extra, ..bench.settings("pg") }).await;
    assert_eq!(bench.sql(&postgres, "show max_connections"), "37");
    assert_eq!(bench.sql(&postgres, "show listen_addresses"), "127.0.0.1");
}

#[tokio::test]
async fn a_wrong_password_is_refused_on_tcp_and_on_the_socket() {
    let bench = Bench::new();
    let postgres = bench.start().await;
    let port = postgres.port();
    let by_tcp = format!("postgres://postgres:wrong@127.0.0.1:{port}/postgres");
    let by_socket = format!("host='{}' port={port} user=postgres password=wrong", postgres.socket_folder().display());
    for way in [by_tcp, by_socket] {
        let refusal = bench.psql(&way, "select 1").unwrap_err();
        assert!(refusal.contains("password authentication failed"), "{refusal}");
    }
    assert!(!format!("{:?}", *postgres).contains(postgres.password()));
}

#[tokio::test]
async fn the_folder_and_the_password_are_private() {
    let bench = Bench::new();
    let postgres = bench.start().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(postgres.folder()), 0o700);
    assert_eq!(mode(&postgres.folder().join("password")), 0o600);
    assert_eq!(mode(&postgres.log_path()), 0o600);
}

/// A port that is nobody's, nor given to those who ask for any: these come from above.
fn quiet_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (first..32_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
}

#[tokio::test]
async fn data_and_port_survive_a_stop_and_a_start() {
    let bench = Bench::new();
    let first = bench.start_with(Settings { port: Some(quiet_port()), ..bench.durable() }).await;
    bench.sql(&first, "create table kept as select 42 as answer");
    for how in [Stop::Smart, Stop::Fast, Stop::Immediate] {
        first.stop(how).await.unwrap();
        first.stop(how).await.unwrap(); // nothing to do, no error
        let again = LocalPostgres::start(bench.durable()).await.unwrap();
        assert!(!again.adopted());
        assert_eq!(again.port(), first.port());
        assert_eq!(bench.sql(&again, "select answer from kept"), "42");
    }
}

#[tokio::test]
async fn a_killed_server_recovers_at_the_next_start() {
    let bench = Bench::new();
    let first = bench.start_with(bench.durable()).await;
    bench.sql(&first, "create table kept as select 42 as answer");
    kill(postmaster_pid(&first));
    let again = LocalPostgres::start(bench.durable()).await.unwrap();
    assert!(!again.adopted());
    assert_eq!(bench.sql(&again, "select answer from kept"), "42");
}

#[tokio::test]
async fn a_pid_file_that_names_a_living_stranger_does_not_keep_it_from_starting() {
    let bench = Bench::new();
    let first = bench.start_with(bench.durable()).await;
    bench.sql(&first, "create table kept as select 42 as answer");
    let pid_file = first.folder().join("data/postmaster.pid");
    let left_behind = fs::read_to_string(&pid_file).unwrap();
    let pid = postmaster_pid(&first).to_string();
    first.stop(Stop::Immediate).await.unwrap();

    // The number of a process that lives long and that PostgreSQL's user may signal.
    let mut stranger = bench.sleeper(&first);
    fs::write(&pid_file, left_behind.replacen(&pid, &stranger.id().to_string(), 1)).unwrap();
    let again = LocalPostgres::start(bench.durable()).await.unwrap();
    assert_eq!(bench.sql(&again, "select answer from kept"), "42");
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives on");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_making_that_was_cut_short_is_begun_anew() {
    let bench = Bench::new();
    let folder = bench.base().join("pg");
    fs::create_dir_all(folder.join("data.new/base")).unwrap();
    fs::write(folder.join("anneal-postgres.lock"), "").unwrap();
    fs::write(folder.join("password"), "").unwrap();
    let postgres = bench.start().await;
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
}

#[tokio::test]
async fn a_path_with_spaces_and_quotes_is_a_path() {
    let bench = Bench::new();
    let postgres = bench.start_with(bench.settings("a \"quoted\", 'folder' name")).await;
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
    assert!(postgres.socket_folder().starts_with(postgres.folder()));
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_puts_it_into_a_short_one() {
    let bench = Bench::new();
    let deep = format!("{}/pg", "a-folder-with-a-long-name/".repeat(6));
    let postgres = bench.start_with(bench.settings(&deep)).await;
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
    let socket_folder = postgres.socket_folder().to_owned();
    assert!(socket_folder.starts_with("/tmp") && !socket_folder.starts_with(postgres.folder()));
    assert_eq!(fs::metadata(&socket_folder).unwrap().mode() & 0o777, 0o700);
    drop(postgres);
    fs::remove_dir_all(socket_folder).unwrap();
}

#[tokio::test]
async fn a_folder_that_its_user_cannot_enter_has_its_data_elsewhere_and_says_where() {
    let bench = Bench::new();
    let private = bench.base().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let postgres = bench.start_with(bench.settings("private/pg")).await;
    assert_eq!(bench.sql(&postgres, "select 1"), "1");
    let again = LocalPostgres::start(bench.settings("private/pg")).await.unwrap();
    assert!(again.adopted());
    // Only root has to move: everybody else runs it as themselves.
    let moved = fs::metadata(bench.base()).unwrap().uid() == 0;
    assert_eq!(moved, !postgres.folder().starts_with(bench.base()));
    if moved {
        let note = fs::read_to_string(private.join("pg/POSTGRES-IS-ELSEWHERE.txt")).unwrap();
        let elsewhere = postgres.folder().to_owned();
        assert!(note.contains(elsewhere.to_str().unwrap()), "{note}");
        drop(postgres);
        fs::remove_dir_all(elsewhere).unwrap();
    }
}

#[tokio::test]
async fn a_folder_with_foreign_files_is_left_alone() {
    let bench = Bench::new();
    fs::create_dir(bench.base().join("thesis")).unwrap();
    fs::write(bench.base().join("thesis/chapter.txt"), "words").unwrap();
    let refusal = LocalPostgres::start(bench.settings("thesis")).await.unwrap_err();
    assert!(matches!(refusal, LocalPostgresError::NotOurs(_)), "{refusal}");
    assert_eq!(fs::read_dir(bench.base().join("thesis")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_wanted_port_that_is_taken_is_an_error_and_a_remembered_one_is_replaced() {
    let bench = Bench::new();
    let first = bench.start_with(Settings { port: Some(quiet_port()), ..bench.settings("pg") }).await;
    first.stop(Stop::Fast).await.unwrap();
    let _squatter = TcpListener::bind((Ipv4Addr::LOCALHOST, first.port())).unwrap();
    let insisting = Settings { port: Some(first.port()), ..bench.settings("pg") };
    let refusal = LocalPostgres::start(insisting).await.unwrap_err();
    assert!(matches!(refusal, LocalPostgresError::PortTaken(port) if port == first.port()), "{refusal}");
    let again = LocalPostgres::start(bench.settings("pg")).await.unwrap();
    assert_ne!(again.port(), first.port());
}

#[tokio::test]
async fn what_postgres_complains_about_is_in_the_error() {
    let bench = Bench::new();
    let extra = vec![("shared_buffers".to_owned(), "plenty".to_owned())];
    let refusal = LocalPostgres::start(Settings { extra, ..bench.settings("pg") }).await.unwrap_err();
    assert!(refusal.to_string().contains("shared_buffers"), "{refusal}");
}
