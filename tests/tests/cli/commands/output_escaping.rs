//! The commands escape control characters in their output, whether these come from a server's
//! answer, a stored row, a name, an argument or a file.

use std::net::SocketAddr;

use anneal_testkit::{AnnealBinary, CommandOutput, Folder, TestApp, pb, user};
use tokio::net::TcpListener;
use tonic::{Status, service::Routes, transport::Server};

use crate::commands::BINARY;

/// A text that sets the window title, clears the screen, rings the bell, begins a C1 control
/// sequence, reverses the text direction and deletes a character.
const ESCAPES: &str = "a\u{1b}]0;owned\u{7}b\u{1b}[2Jc\u{9b}31md\u{202e}e\u{7f}";

/// Asserts that the command has printed no control character but line ends and tabs, and no U+202E,
/// which reverses the text direction.
fn assert_no_controls(command: &str, ran: &CommandOutput) {
    for text in [&ran.out, &ran.err] {
        let raw = text
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t') || *c == '\u{202e}');
        assert_eq!(raw, None, "{command}: {text:?}");
    }
}

/// Starts a server that refuses every call with this message.
async fn start_refusing_server(message: &'static str) -> SocketAddr {
    let refuse = axum::Router::new().fallback(move || async move {
        Status::failed_precondition(message).into_http::<axum::body::Body>()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(
        Server::builder()
            .add_routes(Routes::from(refuse))
            .serve_with_incoming(incoming),
    );
    address
}

#[tokio::test]
async fn every_command_escapes_the_servers_error_message() {
    let address = format!("http://{}", start_refusing_server(ESCAPES).await);
    let folder = Folder::new();
    folder.file("chat.jsonl", "{\"role\":\"user\",\"content\":\"hello\"}\n");
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    for command in [
        &["context", "c"][..],
        &["context", "c", "--explain"],
        &["context", "c", "--json"],
        &["usage", "c"],
        &["compact", "c"],
        &["withdraw", "c", "1"],
        &["rewind", "c", "1"],
        &["restore", "c", "1"],
        &["verify", "c"],
        &["verify", "--all"],
        &["jobs"],
        &["jobs", "requeue", "checkpoint", "c"],
        &["jobs", "discard", "checkpoint", "c"],
        &["erase", "--user", "c"],
        &["erase", "--list"],
        &["models"],
        &["list"],
        &["export", "c", "--format", "openai"],
        &["import", "chat.jsonl"],
        &["chat", "--new", "c"],
    ] {
        let (name, rest) = command.split_first().expect("a name");
        let ran = anneal
            .run_with_input(&[&[*name, "--address", &address], rest].concat(), "hello\n")
            .await;
        assert_ne!(ran.code, Some(0), "{command:?}: {ran:?}");
        assert!(
            ran.err.contains("]0;owned") || ran.out.contains("]0;owned"),
            "{command:?} does not print the message: {ran:?}"
        );
        assert_no_controls(&command.join(" "), &ran);
    }
}

#[tokio::test]
async fn every_command_escapes_stored_content() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let address = format!("http://{}", app.addresses.grpc);
    let ask = pb::CreateConversationRequest {
        policy: Some(pb::Policy {
            max_message_count: Some(4),
            keep_recent_turns: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for _ in 0..4 {
        conversation
            .append_all(vec![user(ESCAPES), anneal_testkit::assistant(ESCAPES)])
            .await;
    }
    app.run_jobs_until_idle().await;
    let statements = [
        "update ai_conversation set title = $1",
        "insert into ai_model_breaker (model, failures, open_until_ts, last_error)
             values ($1, 20, now() + interval '1 minute', $1)",
        // Kind 2 is a checkpoint.
        "insert into ai_job (tenant_id, conversation_id, kind, last_error)
             select tenant_id, conversation_id, 2, $1 from ai_conversation",
        "update ai_conversation_checkpoint set model = $1, summary = $1 || summary",
    ];
    for statement in statements {
        sqlx::query(statement)
            .bind(ESCAPES)
            .execute(&mut app.db().await)
            .await
            .expect("runs");
    }
    let anneal = AnnealBinary::new(BINARY, &folder, "");
    for command in [
        &["context", &conversation.id][..],
        &["context", &conversation.id, "--full"],
        &["context", &conversation.id, "--explain"],
        &["context", &conversation.id, "--json"],
        &["context", &conversation.id, "--format", "openai"],
        &["usage", &conversation.id, "--economics"],
        &["verify", "--all"],
        &["jobs"],
        &["jobs", "requeue", "checkpoint", &conversation.id],
        &["jobs", "--json"],
        &["usage", &conversation.id, "--json"],
        &["list"],
        &["list", "--json"],
        &["models"],
    ] {
        let (name, rest) = command.split_first().expect("a name");
        let ran = anneal
            .run(&[&[*name, "--address", &address], rest].concat())
            .await;
        assert!(!ran.out.is_empty(), "{command:?}: {ran:?}");
        assert_no_controls(&command.join(" "), &ran);
    }
}

#[tokio::test]
async fn commands_escape_names_arguments_and_file_content() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let operator = AnnealBinary::new(BINARY, &folder, &app.url);
    let insert_key = "insert into api_key (key_id, tenant_id, name, secret_digest, verbs)
                select gen_random_uuid(), tenant_id, $1, sha256('x'), 1 from tenant";
    sqlx::query(insert_key)
        .bind(ESCAPES)
        .execute(&mut app.db().await)
        .await
        .expect("stores a key");
    let insert_tenant = "insert into tenant (tenant_id, name) values (gen_random_uuid(), $1)";
    sqlx::query(insert_tenant)
        .bind(ESCAPES)
        .execute(&mut app.db().await)
        .await
        .expect("stores a tenant");
    let broken = folder.file("broken.json", &format!("{{\"messages\": {ESCAPES}"));
    let broken = broken.display().to_string();
    folder.file("settings.toml", &format!("[database]\n\"{ESCAPES}\" = 1\n"));
    let address = format!("http://{}", app.addresses.grpc);
    for command in [
        &["keys", "list"][..],
        &["tenants", "list"],
        &["keys", "create", "--name", ESCAPES, "--tenant", ESCAPES],
        &[
            "keys",
            "create",
            "--name",
            "a",
            "--tenant",
            "\u{1b}]0;owned\u{7}",
        ],
        &["import", "--address", &address, &broken, ESCAPES],
        &["config", "--config", "settings.toml"],
        &["config", "--set", ESCAPES],
        &["usage", "--address", ESCAPES, "c"],
    ] {
        let ran = operator.run(command).await;
        assert!(
            !ran.out.is_empty() || !ran.err.is_empty(),
            "{command:?} prints nothing"
        );
        assert_no_controls(&command.join(" "), &ran);
    }
}
