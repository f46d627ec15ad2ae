//! The index of ai-panel's sessions, `sessions.json` in their folder.

use anneal_testkit::{ImportFolder, TestApp, json_lines};
use serde_json::{Value, json};

use crate::files::BINARY;

/// A session as ai-panel writes it: without ids and without a title.
fn session() -> String {
    let message = |role: &str, text: &str| json!({"type": "message", "message": {"role": role, "content": text}, "timestamp": 1_708_300_001_000_i64});
    json_lines([
        json!({"type": "session", "version": 3, "agentId": "reviewer", "createdAt": 1_708_300_000_000_i64}),
        message("user", "What is broken?"),
        message("assistant", "The turbine."),
    ])
}

fn read_sessions(imports: &ImportFolder<'_>) -> Value {
    let index = imports.folder.path().join("sessions.json");
    let text = std::fs::read_to_string(index).expect("the index is there");
    let index: Value = serde_json::from_str(&text).expect("the index is JSON");
    index["sessions"].clone()
}

#[tokio::test]
async fn a_title_kept_only_in_the_index_survives() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let entry = json!({"id": "ses-1", "agentId": "reviewer", "filePath": "ses-1.jsonl", "title": "The broken turbine",
        "messageCount": 2, "createdAt": 1_708_300_000_000_i64, "lastAt": 1_708_301_234_567_i64, "tokenEstimate": 45_000});
    let other = json!({"id": "ses-2", "title": "Another"});
    let index = json!({"sessions": {"ses-1": entry, "ses-2": other}});
    imports.folder.file("sessions.json", &index.to_string());
    imports.folder.file("ses-1.jsonl", &session());
    let conversation = imports
        .import_ok(&["ses-1.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        conversation.conversation().await.title,
        "The broken turbine"
    );
    let export = [
        conversation.id.as_str(),
        "--format",
        "pi",
        "--output",
        "ses-3.jsonl",
    ];
    imports.export(&export).await;
    let sessions = read_sessions(&imports);
    assert_eq!(
        (&sessions["ses-1"], &sessions["ses-2"]),
        (&entry, &other),
        "other entries stay"
    );
    let written = &sessions["ses-3"];
    for field in [
        "title",
        "agentId",
        "messageCount",
        "createdAt",
        "tokenEstimate",
    ] {
        assert_eq!(written[field], entry[field], "{field}");
    }
    assert_eq!(
        (&written["id"], &written["filePath"]),
        (&json!("ses-3"), &json!("ses-3.jsonl"))
    );
    assert!(written["lastAt"].as_i64() > entry["lastAt"].as_i64());
}

#[tokio::test]
async fn a_session_of_pi_gets_no_index() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn("What is broken?", "The turbine.").await;
    imports
        .export(&[&conversation.id, "--format", "pi", "--output", "s.jsonl"])
        .await;
    assert!(imports.folder.path().join("s.jsonl").exists());
    assert!(!imports.folder.path().join("sessions.json").exists());
}
