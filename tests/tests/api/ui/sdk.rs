//! The AI SDK itself: its chat with `DefaultChatTransport`, and the example.

use std::path::Path;

use anneal_core::caller::Verb;
use anneal_testkit::{AnnealBinary, Folder, Gate, MODEL, Sdk, TestApp};

use crate::sdks::start_model;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The program with the checks, below this crate's folder.
const CHAT: &str = "tests/api/ui/sdk/chat.mjs";

/// The path below this crate's folder.
fn project(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[tokio::test]
async fn a_chat_runs_turns_with_a_tool_and_is_loaded_again() {
    let Some(sdk) = Sdk::javascript("ai-sdk") else {
        return;
    };
    let model = start_model(&Gate::default()).await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let mut command = sdk.command(&project(CHAT));
    command
        .arg("turns")
        .env("ANNEAL_URL", format!("http://{}", app.addresses.http))
        .env("ANNEAL_KEY", &key.text);
    assert_eq!(Sdk::run(command, async || ()).await, "done\n");
}

#[tokio::test]
async fn a_page_that_is_loaded_again_gets_the_answer_although_its_server_was_killed() {
    let Some(sdk) = Sdk::javascript("ai-sdk") else {
        return;
    };
    let slow = Gate::default();
    slow.open(2);
    let model = start_model(&slow).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let folder = Folder::new();
    folder.file("anneal.toml", &model.server_settings());
    let (server, _) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
    let first_server = server.http_client().await.address();
    let mut command = sdk.command(&project(CHAT));
    command
        .arg("reload")
        .env("ANNEAL_URL", format!("http://{first_server}"))
        .env("ANNEAL_URL_AFTER", format!("http://{}", app.addresses.http));
    let output = Sdk::run(command, async || {
        server.kill().await;
        // The lease of a server that has died is not renewed.
        sqlx::query("delete from ai_model_lease")
            .execute(&mut app.db().await)
            .await
            .expect("deletes");
        slow.open_for_ever();
    })
    .await;
    assert_eq!(output, "left\ndone\n");
    // Two calls for the answer, and one for the message after it.
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn the_example_prints_the_expected_output() {
    let Some(sdk) = Sdk::javascript("ai-sdk") else {
        return;
    };
    let slow = Gate::default();
    slow.open_for_ever();
    let model = start_model(&slow).await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut command = sdk.command(&project("../examples/ai-sdk/chat.mjs"));
    command.env("ANNEAL_URL", format!("http://{}", app.addresses.http));
    let output = Sdk::run(command, async || ()).await;
    let lines: Vec<&str> = output.lines().collect();
    let hello = "Hello there, friend!";
    assert_eq!(
        lines[..3],
        [
            format!("first: {hello}"),
            format!("second: {hello}"),
            format!("another: {hello}")
        ]
    );
    // The answer may be complete before the reader comes back.
    let resumed = ["one two three", "nothing, the answer was complete before"];
    assert!(
        resumed
            .iter()
            .any(|resumed| lines[3] == format!("resumed: {resumed}")),
        "{output}"
    );
}
