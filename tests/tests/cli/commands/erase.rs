//! `anneal erase`: dry runs, erasures, and receipts.

use anneal_testkit::{AnnealBinary, CommandOutput, Folder, TestApp, TestConversation, pb};
use serde_json::Value;

use crate::commands::{BINARY, command_line::stdout_of};

/// Runs `anneal erase` with these arguments at this app's server.
async fn erase(app: &TestApp, arguments: &[&str]) -> CommandOutput {
    let (folder, address) = (Folder::new(), format!("http://{}", app.addresses.grpc));
    AnnealBinary::new(BINARY, &folder, "")
        .run(&[&["erase", "--address", &address], arguments].concat())
        .await
}

/// The erasure that the command prints as JSON.
async fn erase_as_json(app: &TestApp, arguments: &[&str]) -> Value {
    let printed = stdout_of(erase(app, &[arguments, &["--json"]].concat()).await);
    serde_json::from_str(&printed).expect("a line of JSON")
}

async fn conversation_of<'a>(app: &'a TestApp, user_id: &str) -> TestConversation<'a> {
    let ask = pb::CreateConversationRequest {
        user_id: user_id.to_owned(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(2).await;
    conversation
}

#[tokio::test]
async fn a_dry_run_counts_and_an_erasure_leaves_a_receipt() {
    let app = TestApp::start().await;
    let kept = conversation_of(&app, "bert").await;
    conversation_of(&app, "anna").await;
    conversation_of(&app, "anna").await;
    let planned = stdout_of(erase(&app, &["--user", "anna", "--dry-run"]).await);
    assert!(
        planned.contains("would delete   2 conversations, 8 messages"),
        "{planned}"
    );
    assert_eq!(stdout_of(erase(&app, &["--list"]).await), "no erasures\n");

    let begun = erase_as_json(&app, &["--user", "anna"]).await;
    assert_eq!(begun["state"], "running");
    app.run_erasures().await;
    let id = begun["erasure_id"].as_str().expect("an id");
    let shown = erase_as_json(&app, &["--show", id, "--wait"]).await;
    assert_eq!(shown["state"], "done");
    assert_eq!(shown["erased_conversations"], 2);
    assert_eq!(shown["rows"]["ai_message"], 8);
    assert!(!shown.to_string().contains("anna"), "{shown}");
    let listed = stdout_of(erase(&app, &["--list", "--user", "anna"]).await);
    assert!(listed.starts_with(id), "{listed}");
    let of_bert = stdout_of(erase(&app, &["--list", "--user", "bert"]).await);
    assert_eq!(of_bert, "no erasures\n");
    assert_eq!(kept.messages().await.len(), 4);
}

#[tokio::test]
async fn messages_and_a_conversation_are_erased_with_their_receipts() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "anna").await;
    let messages = ["--conversation", &conversation.id, "--messages", "1,3-4"];
    let erased = erase_as_json(&app, &messages).await;
    assert_eq!(erased["kind"], "messages");
    assert_eq!(erased["erased_messages"], 3);
    assert_eq!(conversation.messages().await.len(), 1);
    let again = erase(&app, &messages).await;
    assert!(again.err.contains("nothing to erase"), "{again:?}");

    let planned = stdout_of(erase(&app, &["--conversation", &conversation.id, "--dry-run"]).await);
    assert!(planned.contains("1 conversation, 4 messages"), "{planned}");
    let deleted = erase_as_json(&app, &["--conversation", &conversation.id]).await;
    assert_eq!(deleted["kind"], "conversation");
    assert_eq!(deleted["state"], "done");
    assert_eq!(
        app.list_tables_with_rows(conversation.uuid()).await,
        [""; 0]
    );
}

#[tokio::test]
async fn arguments_that_name_nothing_or_contradict_each_other_are_refused() {
    let app = TestApp::start().await;
    let refused: [&[&str]; 6] = [
        &[],
        &["--dry-run"],
        &["--user", "anna", "--tenant", "default"],
        &["--messages", "1"],
        &["--conversation", "x", "--messages", "1", "--dry-run"],
        &["--list", "--dry-run"],
    ];
    for arguments in refused {
        let output = erase(&app, arguments).await;
        assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
    }
    let other = erase(&app, &["--tenant", "somebody"]).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.err.contains("INVALID_FIELD"), "{other:?}");
}
