//! `anneal import` of files that are broken, have oversized messages or hold no conversation. Valid
//! messages are stored, and every other line is reported. With `--strict`, one invalid line is
//! enough to store nothing.

use anneal_testkit::{ImportFolder, TestApp, pi_compaction, pi_message, pi_session, prose};
use serde_json::{Value, json};

use crate::files::BINARY;

fn user_record(text: &str) -> String {
    json!({"type": "user", "content": text, "ts": 1}).to_string()
}

/// Reads the report `name` of an import. Returns what it says of this conversation, or of the whole
/// file if `conversation` is empty: the line numbers in the imported file, in order, and the field
/// `fate` of each line (`refused`, `changed` or `set aside`).
fn read_report(imports: &ImportFolder<'_>, name: &str, conversation: &str) -> Vec<(u64, String)> {
    let text =
        std::fs::read_to_string(imports.folder.path().join(name)).expect("the report is there");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let lines = lines.filter(|line| line["conversation"] == conversation);
    let number_and_fate = |line: Value| {
        (
            line["line"].as_u64().unwrap_or(0),
            line["fate"].as_str().expect("a fate").to_owned(),
        )
    };
    let mut fates: Vec<_> = lines.map(number_and_fate).collect();
    fates.sort();
    fates
}

#[tokio::test]
async fn broken_lines_are_reported_by_number_and_all_others_are_stored() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let lone_surrogate = r#"{"type": "user", "content": "half \ud800 a pair", "ts": 1}"#;
    let nul = r#"{"type": "user", "content": "a\u0000b", "ts": 1}"#;
    let truncated = r#"{"type": "user", "content": "never fin"#;
    let lines = [
        format!("\u{feff}{}", user_record("first")),
        "{oops".into(),
        nul.into(),
        lone_surrogate.into(),
        user_record("冷たい 🧊"),
        truncated.into(),
    ];
    imports.folder.file("broken.jsonl", &lines.join("\r\n"));
    let import = [
        "broken.jsonl",
        "--format",
        "claw0",
        "--report",
        "report.jsonl",
    ];
    let ran = imports.import(&import).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.contains("line 2 refused:") && ran.out.contains("line 6 refused:"),
        "{ran:?}"
    );
    let conversation = imports.conversations(&ran).pop().expect("one conversation");
    let texts: Vec<String> = conversation
        .texts_by_role()
        .await
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        texts,
        ["first", "a\0b", "half \u{fffd} a pair", "冷たい 🧊"]
    );
    let expected = [(2, "refused"), (4, "changed"), (6, "refused")]
        .map(|(line, fate)| (line, fate.to_owned()));
    assert_eq!(
        read_report(&imports, "report.jsonl", &conversation.id),
        expected
    );
    assert_eq!(read_report(&imports, "report.jsonl", ""), []);
    let again = imports.import(&import).await;
    assert!(
        again.out.contains("0 messages stored, 4 there already"),
        "{again:?}"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn the_report_names_conversation_and_line_of_everything_not_imported_as_it_is() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let message = |text: &str| json!({"role": "user", "content": text});
    let lines = [
        json!({"title": "one", "messages": [message("one")]}).to_string(),
        json!({"title": "two", "messages": [message("two"), {"role": "wizard"}], "beside": {}})
            .to_string(),
        "{oops".to_owned(),
        json!({"title": "three", "messages": [{"role": "wizard"}, message("three")]}).to_string(),
        json!({"title": "four", "anneal_marks": 7, "messages": [message("four")]}).to_string(),
    ];
    imports.folder.file("chats.jsonl", &lines.join("\n"));
    let ran = imports
        .import(&["chats.jsonl", "--report", "report.jsonl"])
        .await;
    let report = async |title: &str| {
        for conversation in imports.conversations(&ran) {
            if conversation.conversation().await.title == title {
                return read_report(&imports, "report.jsonl", &conversation.id);
            }
        }
        read_report(&imports, "report.jsonl", "")
    };
    let owned = |fates: &[(u64, &str)]| -> Vec<(u64, String)> {
        fates
            .iter()
            .map(|(line, fate)| (*line, (*fate).to_owned()))
            .collect()
    };
    assert_eq!(report("one").await, []);
    assert_eq!(
        report("two").await,
        owned(&[(2, "refused"), (2, "set aside")])
    );
    assert_eq!(report("").await, owned(&[(3, "refused")]));
    assert_eq!(report("three").await, owned(&[(4, "refused")]));
    // `anneal_marks` is invalid, so no field beside `messages` is used. The title comes from the
    // first message.
    assert_eq!(report("four").await, owned(&[(5, "refused")]));
    assert!(
        ran.out.contains("chats.jsonl line 4 entry 1 refused:"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_strict_import_stores_all_of_a_file_or_nothing() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file(
        "broken.jsonl",
        &format!("{}\n{{oops\n", user_record("first")),
    );
    let too_many_parts = vec![json!({"type": "text", "text": "a"}); 257];
    let large = json!({"type": "assistant", "content": too_many_parts, "ts": 1});
    imports.folder.file(
        "large.jsonl",
        &format!("{}\n{large}\n", user_record("first")),
    );
    for (name, message) in [("broken.jsonl", "line 2"), ("large.jsonl", "256 parts")] {
        let ran = imports
            .import(&[name, "--format", "claw0", "--strict"])
            .await;
        assert!(ran.code == Some(1) && ran.err.contains(message), "{ran:?}");
        assert_eq!(imports.count_conversations().await, 0, "{name}");
    }
}

#[tokio::test]
async fn messages_that_the_server_would_refuse_are_reported_and_the_others_are_stored() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let too_many_parts = vec![json!({"type": "text", "text": "a"}); 257];
    let two_texts = [
        json!({"type": "text", "text": "a"}),
        json!({"type": "text", "text": "b".repeat(5_000_000)}),
    ];
    let lines = [
        user_record("first"),
        json!({"type": "assistant", "content": too_many_parts, "ts": 1}).to_string(),
        user_record("second"),
        json!({"type": "tool_use", "tool_use_id": "i".repeat(129), "name": "look", "input": {}, "ts": 1}).to_string(),
        json!({"type": "assistant", "content": two_texts, "ts": 1}).to_string(),
        user_record("third"),
    ];
    imports.folder.file("large.jsonl", &lines.join("\n"));
    let ran = imports.import(&["large.jsonl", "--format", "claw0"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    // Line 2 is not read as a message, so the message of line 5 is number 4.
    for remark in [
        "line 2 refused: a message of more than 256 parts",
        "line 4 changed:",
        "message 4 refused: without its first text",
    ] {
        assert!(ran.out.contains(remark), "{remark}: {ran:?}");
    }
    let conversation = imports.conversations(&ran).pop().expect("one conversation");
    let texts = async || {
        conversation
            .texts_by_role()
            .await
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
    };
    assert_eq!(texts().await, ["first", "second", "{}", "third"]);
    imports.folder.file(
        "large.jsonl",
        &format!("{}\n{}", lines.join("\n"), user_record("fourth")),
    );
    imports.import(&["large.jsonl", "--format", "claw0"]).await;
    assert_eq!(
        texts().await,
        ["first", "second", "{}", "third", "fourth"],
        "the conversation is found again although two messages were never stored"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_summary_covers_its_messages_although_one_was_refused() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let parts = [
        json!({"type": "text", "text": "a"}),
        json!({"type": "text", "text": "b".repeat(5_000_000)}),
    ];
    let large =
        json!({"type": "message", "message": {"role": "user", "content": parts, "timestamp": 1}});
    let message = |n: usize| {
        pi_message(
            if n.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            },
            &prose(n * 20, 20),
        )
    };
    let entries = [
        large,
        message(0),
        message(1),
        message(2),
        pi_compaction("Inspections.", 4),
        message(3),
    ];
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    for _ in 0..2 {
        let ran = imports.import(&["pi.jsonl"]).await;
        let conversation = imports.conversations(&ran).pop().expect("one conversation");
        assert_eq!(conversation.messages().await.len(), 4);
        assert_eq!(
            conversation.checkpoints().await[0].last_message_id,
            2,
            "the compaction keeps entry 4, and entry 1 is refused: {ran:?}"
        );
        conversation.verify().await;
    }
}

#[tokio::test]
async fn messages_too_large_for_one_request_are_imported_and_exported() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let long = "0123456789 冷\n".repeat(600_000);
    let lines = [
        user_record("small"),
        user_record(&long),
        user_record("after"),
    ];
    imports.folder.file("long.jsonl", &lines.join("\n"));
    let conversation = imports
        .import_ok(&["long.jsonl", "--format", "claw0"])
        .await
        .pop()
        .expect("one conversation");
    let texts = conversation.texts_by_role().await;
    assert!(
        texts.len() == 3 && texts[1].1 == long,
        "{} bytes",
        texts[1].1.len()
    );
    let again = imports.import(&["long.jsonl", "--format", "claw0"]).await;
    assert!(
        again.out.contains("0 messages stored, 3 there already"),
        "{again:?}"
    );
    let exported = imports
        .export(&[&conversation.id, "--format", "claw0"])
        .await;
    assert!(exported.len() > long.len());
}

#[tokio::test]
async fn files_without_a_conversation_are_refused_and_named() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("empty.json", "");
    imports
        .folder
        .file("prose.txt", "Dear diary,\nit was cold.\n");
    std::fs::write(
        imports.folder.path().join("noise.bin"),
        [0_u8, 159, 146, 150].repeat(1_000),
    )
    .expect("writes");
    for name in ["empty.json", "prose.txt", "noise.bin", "missing.jsonl"] {
        let ran = imports.import(&[name]).await;
        assert!(
            ran.code == Some(1) && ran.err.contains(name) && ran.err.starts_with("anneal: "),
            "{ran:?}"
        );
    }
    assert_eq!(imports.count_conversations().await, 0);
}
