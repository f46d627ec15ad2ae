//! `anneal export`: in every format, an exported conversation is the same when it is imported
//! again.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    ImportFolder, TestApp, TestConversation, TranscriptFolder, assistant, claw0_session, pb,
    pi_message, pi_session, skip_outside_gate, user,
};

use crate::files::BINARY;

/// A Python program that converts the records of two files to Anthropic's messages as claw0 does
/// (`_rebuild_history`), and prints whether the messages are the same.
const REBUILD: &str = r#"
import json, sys
def rebuild(path):
    messages = []
    for line in open(path, encoding="utf-8").read().strip().split("\n"):
        record = json.loads(line)
        rtype = record.get("type")
        if rtype == "user":
            messages.append({"role": "user", "content": record["content"]})
        elif rtype == "assistant":
            content = record["content"]
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            messages.append({"role": "assistant", "content": content})
        elif rtype == "tool_use":
            block = {"type": "tool_use", "id": record["tool_use_id"], "name": record["name"], "input": record["input"]}
            if messages and messages[-1]["role"] == "assistant":
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "assistant", "content": [block]})
        elif rtype == "tool_result":
            block = {"type": "tool_result", "tool_use_id": record["tool_use_id"], "content": record["content"]}
            if (messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list)
                    and messages[-1]["content"][0].get("type") == "tool_result"):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
    return messages
first, second = rebuild(sys.argv[1]), rebuild(sys.argv[2])
print(len(first), first == second)
"#;

/// Exports a conversation and imports the file for another user. Returns the imported messages.
pub(crate) async fn export_and_import(
    imports: &ImportFolder<'_>,
    id: &str,
    format: &str,
) -> Vec<pb::NewMessage> {
    let file = format!("{id}.{format}");
    imports
        .export(&[id, "--format", format, "--output", &file, "--force"])
        .await;
    let conversations = imports
        .import_ok(&[&file, "--format", format, "--user", format])
        .await;
    assert_eq!(conversations.len(), 1, "{format}");
    conversations[0].verify().await;
    conversations[0].as_new_messages().await
}

#[tokio::test]
async fn row_C1_a_claw0_session_is_imported_and_exported_without_loss() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let original = imports.folder.file("session.jsonl", &claw0_session(20));
    let conversation = imports
        .import_ok(&["session.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let original_messages = conversation.as_new_messages().await;
    assert!(
        export_and_import(&imports, &conversation.id, "claw0").await == original_messages,
        "export then import gives the same messages"
    );
    let exported = imports
        .folder
        .path()
        .join(format!("{}.claw0", conversation.id));
    let python = std::process::Command::new("python3")
        .arg("-c")
        .arg(REBUILD)
        .arg(&original)
        .arg(&exported)
        .output();
    match python {
        Ok(ran) => assert_eq!(
            String::from_utf8_lossy(&ran.stdout).trim(),
            // 20 turns of four messages: question, call, result and answer.
            "80 True",
            "{ran:?}"
        ),
        Err(_) => skip_outside_gate("claw0's reader needs python3"),
    }
}

/// Imports a file, and exports each of its conversations to every format and imports it again
/// without loss. Returns how many conversations and messages the file has.
async fn check_every_format(imports: &ImportFolder<'_>, path: &str) -> (usize, usize) {
    let conversations = imports.import_ok(&[path]).await;
    let mut messages = 0;
    for conversation in &conversations {
        let original_messages = conversation.as_new_messages().await;
        assert!(!original_messages.is_empty(), "{path}");
        for format in ["pi", "claw0", "openai", "anthropic", "sharegpt", "zeroclaw"] {
            assert!(
                export_and_import(imports, &conversation.id, format).await == original_messages,
                "{path} exported as {format}"
            );
        }
        conversation.verify().await;
        messages += original_messages.len();
    }
    (conversations.len(), messages)
}

#[tokio::test]
async fn row_P7_files_are_imported_and_exported_without_loss_real_ones_where_they_are() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw0.jsonl", &claw0_session(3));
    let entries = [pi_message("user", "Who?"), pi_message("assistant", "I.")];
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    for (path, messages) in [("claw0.jsonl", 12), ("pi.jsonl", 2)] {
        assert_eq!(check_every_format(&imports, path).await, (1, messages));
    }
    let Some(transcripts) = TranscriptFolder::find() else {
        return;
    };
    let (mut conversations, mut messages) = (0, 0);
    for folder in ["pi-sessions", "swe-agent"] {
        for entry in std::fs::read_dir(transcripts.path(folder)).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            if !path
                .extension()
                .is_some_and(|ending| ending == "jsonl" || ending == "traj")
            {
                continue;
            }
            let found = check_every_format(&imports, path.to_str().expect("a path")).await;
            conversations += found.0;
            messages += found.1;
        }
    }
    println!("{conversations} conversations, {messages} messages, the same after every format");
    assert!(conversations >= 6);
}

/// The ids of the messages that the conversation's separators follow.
pub(crate) async fn list_separators(conversation: &TestConversation<'_>) -> Vec<i64> {
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        page_size: 500,
        ..Default::default()
    };
    let page = conversation
        .app
        .messages()
        .list_messages(ask)
        .await
        .expect("lists")
        .into_inner();
    page.separators
        .into_iter()
        .map(|separator| separator.after_message_id)
        .collect()
}

#[tokio::test]
async fn every_format_exports_and_imports_separators() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.insert_separator().await;
    conversation.turn("One?", "One.").await;
    conversation.insert_separator().await;
    conversation.turn("Two?", "Two.").await;
    conversation.turn("Three?", "Three.").await;
    conversation.insert_separator().await;
    assert_eq!(list_separators(&conversation).await, [0, 2, 6]);
    for format in ["openai", "anthropic", "claw0", "pi", "sharegpt", "zeroclaw"] {
        imports
            .export(&[&conversation.id, "--format", format, "--output", format])
            .await;
        for _ in 0..2 {
            let other = imports
                .import_ok(&[format, "--format", format, "--user", format])
                .await
                .pop()
                .expect("one conversation");
            assert_eq!(list_separators(&other).await, [0, 2, 6], "{format}");
            assert_eq!(
                other.texts_by_role().await,
                conversation.texts_by_role().await,
                "{format}"
            );
            assert_eq!(
                other.context().await.0.boundary_message_id,
                6,
                "{format}: contexts start after the last separator"
            );
        }
    }
}

#[tokio::test]
async fn an_existing_file_is_overwritten_only_with_force() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn("Hello?", "Hello.").await;
    let file = imports.folder.file("mine.jsonl", "mine");
    let export = [
        conversation.id.as_str(),
        "--format",
        "claw0",
        "--output",
        "mine.jsonl",
    ];
    let refused = imports
        .anneal
        .run(&imports.arguments("export", &export))
        .await;
    assert!(
        refused.code == Some(1) && refused.err.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("exists"), "mine");
    imports.export(&[&export[..], &["--force"]].concat()).await;
    assert_eq!(
        std::fs::read_to_string(&file)
            .expect("exists")
            .lines()
            .count(),
        3,
        "a line about the conversation and two messages"
    );
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    let missing = [unknown, "--format", "claw0", "--output", "none.jsonl"];
    let refused = imports
        .anneal
        .run(&imports.arguments("export", &missing))
        .await;
    assert!(
        refused.code == Some(1) && refused.err.contains("not found"),
        "{refused:?}"
    );
    let files: Vec<_> = std::fs::read_dir(imports.folder.path())
        .expect("a folder")
        .collect();
    assert_eq!(files.len(), 1, "no partial file is left: {files:?}");
    let without_output = imports
        .anneal
        .run(&imports.arguments("export", &[&conversation.id, "--format", "zeroclaw"]))
        .await;
    assert!(
        without_output.code == Some(1) && without_output.err.contains("--output"),
        "zeroclaw's format is a database, which needs a file: {without_output:?}"
    );
}

#[tokio::test]
async fn formats_that_allow_several_conversations_in_a_file_export_them_into_one() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let (one, two) = (app.conversation().await, app.conversation().await);
    one.append_all(vec![user("One?"), assistant("One.")]).await;
    two.append_all(vec![user("Two?"), assistant("Two.")]).await;
    for format in ["openai", "anthropic", "sharegpt", "zeroclaw"] {
        imports
            .export(&[&one.id, &two.id, "--format", format, "--output", format])
            .await;
        let conversations = imports
            .import_ok(&[format, "--format", format, "--user", format])
            .await;
        assert_eq!(conversations.len(), 2, "{format}");
        let mut texts = vec![
            conversations[0].texts_by_role().await,
            conversations[1].texts_by_role().await,
        ];
        texts.sort_by_key(|texts| texts[0].1.clone());
        assert_eq!(
            texts,
            [one.texts_by_role().await, two.texts_by_role().await],
            "{format}"
        );
    }
    let refused = imports
        .anneal
        .run(&imports.arguments("export", &[&one.id, &two.id, "--format", "pi"]))
        .await;
    assert_eq!(
        refused.code,
        Some(1),
        "a session file holds one conversation: {refused:?}"
    );
}
