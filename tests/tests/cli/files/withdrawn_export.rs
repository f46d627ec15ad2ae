//! `anneal export` of a conversation with withdrawn messages: they are in no format, and what
//! stands around them keeps its place.

use anneal_testkit::{ImportFolder, TestApp, pb, prose};
use serde_json::Value;

use crate::files::{
    BINARY,
    export::{export_and_import, list_separators},
};

#[tokio::test]
async fn withdrawn_messages_are_in_no_exported_file_and_separators_keep_their_places() {
    const SECRET: &str = "xylophone";
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn(&format!("{SECRET} one?"), SECRET).await;
    conversation.insert_separator().await;
    conversation.turn("Two?", "Two.").await;
    conversation.turn("Three?", "Three.").await;
    conversation.turn(&format!("{SECRET} four?"), SECRET).await;
    conversation.insert_separator().await;
    conversation.turn("Five?", "Five.").await;
    conversation.turn(&format!("{SECRET} six?"), SECRET).await;
    conversation.withdraw(&[1, 2, 7, 8, 11, 12]).await;
    let left = conversation.as_new_messages().await;
    assert_eq!(left.len(), 6);
    for format in ["openai", "anthropic", "claw0", "pi", "sharegpt", "zeroclaw"] {
        assert!(
            export_and_import(&imports, &conversation.id, format).await == left,
            "{format}"
        );
        let file = format!("{}.{format}", conversation.id);
        let exported = std::fs::read(imports.folder.path().join(&file)).expect("is written");
        let is_secret = |window: &[u8]| window == SECRET.as_bytes();
        assert!(
            !exported.windows(SECRET.len()).any(is_secret),
            "{format} contains a withdrawn message"
        );
        let imported = imports
            .import_ok(&[&file, "--format", format, "--user", format])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(list_separators(&imported).await, [0, 4], "{format}");
    }
}

#[tokio::test]
async fn an_exported_compaction_names_the_first_message_that_it_keeps() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app
        .conversation_with_policy(pb::Policy {
            keep_recent_turns: Some(1),
            ..Default::default()
        })
        .await;
    for n in 0..5 {
        conversation
            .turn(&prose(n * 40, 20), &prose(n * 40 + 20, 20))
            .await;
    }
    conversation.withdraw(&[3, 4]).await;
    app.run_jobs_until_idle().await;
    conversation.compact("by hand", "").await;
    let checkpoint = conversation
        .checkpoints()
        .await
        .pop()
        .expect("a checkpoint");
    assert_eq!(checkpoint.last_message_id, 8);
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let lines: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let compaction = lines
        .iter()
        .find(|line| line["type"] == "compaction")
        .expect("a compaction entry");
    let messages: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "message")
        .collect();
    assert_eq!(messages.len(), 8);
    assert_eq!(
        compaction["firstKeptEntryId"], messages[6]["id"],
        "six of the eight messages up to the checkpoint are left"
    );
}
