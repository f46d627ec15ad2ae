//! `anneal dev`: server and worker in one process, on a PostgreSQL in the working directory.

use anneal_local_postgres::{LocalPostgres, Settings, Stop};
use anneal_testkit::{AnnealBinary, Folder, Process, pb, postgres_binaries, user};
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

#[tokio::test]
async fn dev_keeps_its_data_when_it_is_killed_and_started_again() {
    let folder = Folder::new();
    let _cleanup = StopPostgres(&folder);
    let anneal = AnnealBinary::on_durable(BINARY, &folder, "");
    let (first, address) = start_dev(&anneal).await;
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
