//! The index of claw0's sessions, `sessions.json` beside their folder.

use anneal_testkit::{ImportFolder, TestApp, claw0_session};
use serde_json::{Value, json};

use crate::files::BINARY;

/// The index of the agent ann, in claw0's folders.
fn write_index(imports: &ImportFolder<'_>, index: &Value) {
    let sessions = imports.folder.path().join("ann/sessions");
    std::fs::create_dir_all(sessions).expect("the folders are made");
    imports.folder.file("ann/sessions.json", &index.to_string());
}

fn read_index(imports: &ImportFolder<'_>) -> Value {
    let index = imports.folder.path().join("ann/sessions.json");
    let text = std::fs::read_to_string(index).expect("the index is there");
    serde_json::from_str(&text).expect("the index is JSON")
}

#[tokio::test]
async fn a_title_kept_only_in_the_index_survives() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let session = json!({"label": "The broken turbine", "created_at": "2001-01-02T03:04:05.678901+00:00",
        "last_active": "2001-01-03T00:00:00+00:00", "message_count": 5, "mood": 1.50});
    let other = json!({"label": "Another", "message_count": 1});
    let index = json!({"a1b2c3": session, "d4e5f6": other});
    write_index(&imports, &index);
    let file = "ann/sessions/a1b2c3.jsonl";
    imports.folder.file(file, &claw0_session(2));
    let conversation = imports
        .import_ok(&[file, "--format", "claw0"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        conversation.conversation().await.title,
        "The broken turbine"
    );
    // A new copy of the session gets the entry of the imported one.
    write_index(&imports, &json!({"d4e5f6": other}));
    let copy = "ann/sessions/copy.jsonl";
    let export = [
        conversation.id.as_str(),
        "--format",
        "claw0",
        "--output",
        copy,
    ];
    imports.export(&export).await;
    let written = read_index(&imports);
    assert_eq!(written["d4e5f6"], other, "other entries stay");
    let entry = &written["copy"];
    for field in ["label", "created_at", "mood"] {
        assert_eq!(entry[field], session[field], "{field}");
    }
    let count = conversation.messages().await.len();
    assert_eq!(entry["message_count"], count);
    assert!(
        entry["last_active"].as_str() > session["last_active"].as_str(),
        "when the newest message was stored: {entry}"
    );
}

#[tokio::test]
async fn an_export_into_a_folder_of_claw0_makes_the_index_and_elsewhere_none() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn("What is broken?", "The turbine.").await;
    for folder in ["ann/sessions", "elsewhere"] {
        let folder = imports.folder.path().join(folder);
        std::fs::create_dir_all(folder).expect("the folders are made");
    }
    for file in ["ann/sessions/s.jsonl", "elsewhere/s.jsonl"] {
        let export = [
            conversation.id.as_str(),
            "--format",
            "claw0",
            "--output",
            file,
        ];
        imports.export(&export).await;
    }
    let title = conversation.conversation().await.title;
    assert_eq!(read_index(&imports)["s"]["label"], title);
    let mut elsewhere = std::fs::read_dir(imports.folder.path().join("elsewhere"))
        .expect("the folder is there")
        .map(|file| file.expect("a file").file_name());
    assert_eq!(elsewhere.next(), Some("s.jsonl".into()));
    assert_eq!(elsewhere.next(), None);
    assert!(!imports.folder.path().join("sessions.json").exists());
}

#[tokio::test]
async fn an_index_that_cannot_be_read_is_left_as_it_is() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    write_index(&imports, &json!("no index"));
    let file = "ann/sessions/a.jsonl";
    imports.folder.file(file, &claw0_session(1));
    let ran = imports.import(&[file, "--format", "claw0"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let remark = "no title is taken from sessions.json: it is not a JSON object";
    assert!(ran.out.contains(remark), "{ran:?}");
    let conversation = imports.conversations(&ran).pop().expect("one conversation");
    let copy = "ann/sessions/copy.jsonl";
    let export = [
        conversation.id.as_str(),
        "--format",
        "claw0",
        "--output",
        copy,
    ];
    let ran = imports
        .anneal
        .run(&imports.arguments("export", &export))
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("sessions.json"), "{ran:?}");
    assert_eq!(read_index(&imports), json!("no index"));
    assert!(
        imports.folder.path().join(copy).exists(),
        "the session itself was written"
    );
}
