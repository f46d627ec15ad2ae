//! `anneal dev`: server and worker in one process, on a PostgreSQL in the working directory.

use std::path::{Path, PathBuf};

use anneal_local_postgres::{LocalPostgres, Settings, Stop};
use anneal_testkit::{AnnealBinary, Folder, Process, eventually, pb, postgres_binaries, user};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::process::Command;

use crate::commands::BINARY;

/// Stops, when it is dropped, the PostgreSQL that a killed `anneal dev` leaves running.
struct StopPostgres<'a>(&'a Folder);

impl Drop for StopPostgres<'_> {
    fn drop(&mut self) {
        let settings = Settings::new(self.0.path().join(".anneal/postgres"), postgres_binaries());
        // Adopts the server that runs in the folder, so that it can be stopped.
        if let Ok(postgres) = LocalPostgres::start_blocking(&settings) {
            let _ = postgres.stop_blocking(Stop::Immediate);
        }
    }
}

#[tokio::test]
async fn dev_once_imports_shows_a_checkpoint_verifies_and_exits() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let lines: Vec<String> = (0..30)
        .map(|n| {
            let question = serde_json::json!({"role": "user", "content": format!("What is the capital of country {n}, and who lives there?")});
            let answer = serde_json::json!({"role": "assistant", "content": format!("The capital is City-{n}; {n}00,000 people live there.")});
            format!("{question}\n{answer}")
        })
        .collect();
    folder.file("talk.jsonl", &lines.join("\n"));
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    for round in ["first", "second"] {
        let ran = anneal
            .run(&[
                "dev",
                "--once",
                "--import",
                "talk.jsonl",
                "--max-message-count",
                "20",
                "--keep-recent",
                "3 turns",
            ])
            .await;
        assert_eq!(ran.code, Some(0), "{round}: {ran:?}");
        assert!(
            ran.out.contains("starts after the checkpoint at"),
            "{round}: {ran:?}"
        );
        assert!(
            ran.out.contains("verified 1 conversation, 60 messages"),
            "{round}: {ran:?}"
        );
    }
    assert!(folder.path().join(".anneal/postgres").is_dir());
}

/// Starts `anneal dev` and returns the URL of its gRPC server.
async fn start_dev(anneal: &AnnealBinary) -> (Process, String) {
    let dev = anneal.start(&[
        "dev",
        "--set",
        "server.grpc_address=127.0.0.1:0",
        "--set",
        "server.http_address=127.0.0.1:0",
    ]);
    let line = dev.wait_for_line("  gRPC ").await;
    let address = line
        .split_whitespace()
        .nth(1)
        .expect("an address")
        .to_owned();
    (dev, format!("http://{address}"))
}

/// Asserts that the page is there, at the address that is printed, without a sign-in.
async fn assert_shows_page(dev: &Process) {
    let line = dev.wait_for_line("  page ").await;
    let url = line.split_whitespace().nth(1).expect("an address");
    let page = reqwest::get(url).await.expect("answers");
    assert_eq!(
        (page.status().as_u16(), page.url().path()),
        (200, "/conversations")
    );
}

#[tokio::test]
async fn dev_keeps_its_data_when_it_is_killed_and_started_again() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (first, address) = start_dev(&anneal).await;
    assert_shows_page(&first).await;
    let mut conversations = ConversationServiceClient::connect(address.clone())
        .await
        .expect("connects");
    let made = conversations
        .create_conversation(pb::CreateConversationRequest::default())
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages: vec![user("kept")],
        ..Default::default()
    };
    MessageServiceClient::connect(address)
        .await
        .expect("connects")
        .append_messages(ask)
        .await
        .expect("appends");
    first.kill().await;
    let (second, address) = start_dev(&anneal).await;
    let ask = pb::ListMessagesRequest {
        conversation_id,
        ..Default::default()
    };
    let listed = MessageServiceClient::connect(address)
        .await
        .expect("connects")
        .list_messages(ask)
        .await
        .expect("lists");
    assert_eq!(listed.into_inner().messages[0].parts, user("kept").parts);
    let shown = second.wait_for_line("  PostgreSQL ").await;
    let after_scheme = shown
        .split_once("postgres://")
        .and_then(|(_, rest)| rest.split_once("  ("))
        .expect("a URL")
        .0;
    // The URL is printed for a shell, which expands it.
    let expanded = Command::new("sh")
        .args(["-c", &format!("printf %s \"postgres://{after_scheme}\"")])
        .output()
        .await;
    let expanded = String::from_utf8(expanded.expect("a shell").stdout).expect("text");
    let tenants = AnnealBinary::new(BINARY, &folder, &expanded)
        .run(&["tenants", "list"])
        .await;
    assert_eq!(
        tenants.code,
        Some(0),
        "the printed URL works: {shown} {tenants:?}"
    );
    second.terminate().await;
    assert_eq!(second.wait_for_exit().await, Some(0));
}

/// The folder of the PostgreSQL that this `anneal dev` uses.
async fn postgres_folder(dev: &Process) -> PathBuf {
    let line = dev.wait_for_line("  data ").await;
    let folder = line.trim_start().strip_prefix("data").expect("the folder");
    PathBuf::from(folder.trim())
}

/// Sends SIGKILL to the PostgreSQL in this folder.
async fn kill_postgres(folder: &Path) {
    let pid_file = std::fs::read_to_string(folder.join("data/postmaster.pid")).expect("it runs");
    let pid = pid_file.lines().next().expect("the pid").trim();
    let killed = Command::new("kill").args(["-KILL", pid]).status().await;
    assert!(killed.expect("`kill` is installed").success());
}

async fn create_conversation(address: &str) -> Result<String, tonic::Status> {
    let channel = tonic::transport::Endpoint::from_shared(address.to_owned())
        .expect("an address")
        .connect_lazy();
    let ask = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel)
        .create_conversation(ask)
        .await?;
    Ok(made.into_inner().conversation_id)
}

const STARTS_AGAIN: &str = "PostgreSQL has ended and is started again";

/// Kills PostgreSQL for the `death`-th time, and waits until the server has its database again.
async fn kill_and_await_restart(dev: &Process, address: &str, postgres: &Path, death: usize) {
    kill_postgres(postgres).await;
    eventually("dev says that PostgreSQL has ended", async || {
        let lines = dev.lines();
        let said = lines.iter().filter(|line| line.contains(STARTS_AGAIN));
        said.count() == death
    })
    .await;
    eventually("the server has its database again", async || {
        create_conversation(address).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_killed_postgres_is_started_again_and_the_end_of_dev_is_not_taken_for_its_death() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (dev, address) = start_dev(&anneal).await;
    create_conversation(&address).await.expect("creates");
    let postgres = postgres_folder(&dev).await;
    for death in 1..=2 {
        kill_and_await_restart(&dev, &address, &postgres, death).await;
    }
    let note = dev.wait_for_line(STARTS_AGAIN).await;
    assert!(note.contains("postgres.log"), "{note}");
    dev.terminate().await;
    assert_eq!(dev.wait_for_exit().await, Some(0));
    assert!(!postgres.join("data/postmaster.pid").exists());
}

#[tokio::test]
async fn dev_ends_with_an_error_if_postgres_cannot_be_started_again() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (dev, _) = start_dev(&anneal).await;
    let postgres = postgres_folder(&dev).await;
    let settings = postgres.join("data/postgresql.auto.conf");
    std::fs::write(settings, "shared_buffers = 'plenty'\n").expect("is written");
    kill_postgres(&postgres).await;
    let error = dev
        .wait_for_line("PostgreSQL cannot be started again")
        .await;
    assert!(
        error.contains("postgres.log") && error.contains("run `anneal dev` again"),
        "{error}"
    );
    assert_eq!(dev.wait_for_exit().await, Some(1));
}

#[tokio::test]
async fn dev_ends_with_an_error_if_postgres_ends_again_and_again() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (dev, address) = start_dev(&anneal).await;
    let postgres = postgres_folder(&dev).await;
    for death in 1..=2 {
        kill_and_await_restart(&dev, &address, &postgres, death).await;
    }
    kill_postgres(&postgres).await;
    let error = dev
        .wait_for_line("PostgreSQL cannot be started again")
        .await;
    assert!(
        error.contains("postgres.log") && error.contains("ended 3 times within a minute"),
        "{error}"
    );
    assert_eq!(dev.wait_for_exit().await, Some(1));
}

#[tokio::test]
async fn the_second_dev_of_a_folder_goes_on_after_the_first_and_stops_postgres_at_its_end() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (first, _) = start_dev(&anneal).await;
    let (second, address) = start_dev(&anneal).await;
    let postgres = postgres_folder(&second).await;
    first.terminate().await;
    assert_eq!(first.wait_for_exit().await, Some(0));
    second.wait_for_line(STARTS_AGAIN).await;
    eventually("the second server has its database again", async || {
        create_conversation(&address).await.is_ok()
    })
    .await;
    second.terminate().await;
    assert_eq!(second.wait_for_exit().await, Some(0));
    assert!(!postgres.join("data/postmaster.pid").exists());
}
