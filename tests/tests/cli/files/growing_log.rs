//! `anneal import` of a claw0 log while it grows. In the end the conversation has the same parts,
//! whatever number of records the log had at the earlier imports.

use anneal_testkit::{ImportFolder, TestApp, TestConversation, assistant, pb};
use serde_json::{Value, json};

use crate::files::{BINARY, delete_first_versions};

/// The lines of a log with every case in which several records become one message: an answer and
/// two calls; two results; two calls without an answer before them.
fn log() -> Vec<String> {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let call = |id: &str, ts: f64| json!({"type": "tool_use", "tool_use_id": id, "name": "look", "input": {"of": id}, "ts": ts});
    let result = |id: &str, ts: u32| json!({"type": "tool_result", "tool_use_id": id, "content": format!("Saw {id}."), "ts": ts});
    let records = [
        json!({"type": "user", "content": "What is here?", "ts": 1}),
        json!({"type": "assistant", "content": text("I look."), "ts": 2}),
        call("a", 3.0),
        call("b", 3.5),
        result("a", 4),
        result("b", 5),
        json!({"type": "assistant", "content": text("Nothing."), "ts": 6}),
        json!({"type": "user", "content": "And there?", "ts": 7}),
        call("c", 8.0),
        call("d", 9.0),
        result("c", 10),
        result("d", 11),
        json!({"type": "assistant", "content": text("A cat."), "ts": 12}),
    ];
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Reads the parts of all messages, each with its message's role.
async fn list_parts(conversation: &TestConversation<'_>) -> Vec<(i32, pb::Part)> {
    let messages = conversation.as_new_messages().await.into_iter();
    messages
        .flat_map(|message| {
            message
                .parts
                .into_iter()
                .map(move |part| (message.role, part))
        })
        .collect()
}

/// Numbers of records after which the log ends between two parallel calls. If a log that ends there
/// is imported, contexts have the calls in two messages.
const CUTS_BETWEEN_CALLS: [usize; 2] = [3, 9];

/// The blocks of a request to Anthropic, sorted.
fn sorted_blocks(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().expect("blocks"));
    let mut blocks: Vec<String> = blocks.map(Value::to_string).collect();
    blocks.sort();
    blocks
}

/// Builds the context as a request to Anthropic.
async fn build_request(conversation: &TestConversation<'_>) -> Value {
    let ask = pb::BuildContextRequest {
        conversation_id: conversation.id.clone(),
        format: pb::Format::AnthropicMessages.into(),
        ..Default::default()
    };
    let built = conversation
        .app
        .contexts()
        .build_context(ask)
        .await
        .expect("builds")
        .into_inner();
    serde_json::from_str(&built.rendered.expect("is rendered")).expect("JSON")
}

/// Reads the times of the records from the messages' metadata.
async fn list_times(conversation: &TestConversation<'_>) -> Vec<String> {
    let messages = conversation.as_new_messages().await.into_iter();
    messages
        .flat_map(|message| {
            message.metadata["claw0.ts"]
                .split(' ')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
async fn a_log_imported_in_two_steps_has_the_parts_of_one_imported_at_once() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    imports.folder.file("log.jsonl", &log.concat());
    let whole = imports
        .import_ok(&["log.jsonl", "--user", "at once"])
        .await
        .pop()
        .expect("one conversation");
    let parts = list_parts(&whole).await;
    let request = build_request(&whole).await;
    let times = list_times(&whole).await;
    // Records 2 to 4, 5 and 6, 9 and 10, 11 and 12 are one message each.
    assert_eq!(whole.messages().await.len(), 8);
    assert_eq!(parts.len(), log.len());
    for cut in 1..log.len() {
        let user = format!("cut after {cut}");
        imports.folder.file("log.jsonl", &log[..cut].concat());
        let first = imports
            .import_ok(&["log.jsonl", "--user", &user])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(
            list_parts(&first).await,
            parts[..cut],
            "{user}: all records are imported"
        );
        imports.folder.file("log.jsonl", &log.concat());
        for _ in 0..2 {
            let grown = imports
                .import_ok(&["log.jsonl", "--user", &user])
                .await
                .pop()
                .expect("one conversation");
            assert_eq!(grown.id, first.id);
            assert_eq!(list_parts(&grown).await, parts, "{user}");
            let sent = build_request(&grown).await;
            assert_eq!(sorted_blocks(&sent), sorted_blocks(&request), "{user}");
            assert!(
                sent == request || CUTS_BETWEEN_CALLS.contains(&cut),
                "{user}: {sent}"
            );
            grown.verify().await;
        }
        assert_eq!(list_times(&first).await, times, "{user}");
    }
}

#[tokio::test]
async fn a_log_imported_after_every_record_has_the_parts_of_one_imported_at_once() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    for count in 1..=log.len() {
        imports.folder.file("log.jsonl", &log[..count].concat());
        let ran = imports.import(&["log.jsonl"]).await;
        assert!(
            ran.code == Some(0) && ran.out.contains("1 message stored"),
            "{count} records: {ran:?}"
        );
    }
    let conversation = imports
        .import_ok(&["log.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let whole = imports
        .import_ok(&["log.jsonl", "--user", "at once"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(list_parts(&conversation).await, list_parts(&whole).await);
    assert_eq!(
        sorted_blocks(&build_request(&conversation).await),
        sorted_blocks(&build_request(&whole).await)
    );
    let expected = [
        "1", "2", "3.0", "3.5", "4", "5", "6", "7", "8.0", "9.0", "10", "11", "12",
    ];
    assert_eq!(
        list_times(&conversation).await,
        expected,
        "each record keeps its time"
    );
    // The exported log has the same messages when it is imported.
    let exported = imports
        .export(&[&conversation.id, "--format", "claw0"])
        .await;
    imports.folder.file("back.jsonl", &exported);
    let back = imports
        .import_ok(&["back.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        back.as_new_messages().await,
        conversation.as_new_messages().await
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_summary_covers_the_same_records_after_a_message_has_grown() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let long_text = |text: &str| json!([{"type": "text", "text": text.repeat(100)}]);
    let mut log = vec![
        json!({"type": "user", "content": "What is here? ".repeat(100), "ts": 1}),
        json!({"type": "assistant", "content": long_text("I look. "), "ts": 2}),
    ];
    let name = "log.jsonl";
    imports
        .folder
        .file(name, &anneal_testkit::json_lines(log.clone()));
    imports.import_ok(&[name]).await;
    log.extend([
        json!({"type": "tool_use", "tool_use_id": "a", "name": "look", "input": {}, "ts": 3}),
        json!({"type": "tool_result", "tool_use_id": "a", "content": "Nothing.", "ts": 4}),
        json!({"type": "assistant", "content": long_text("Nothing. "), "ts": 5}),
        json!({"type": "anneal", "summary": {"covers": 3, "text": "Nothing was seen."}}),
    ]);
    imports.folder.file(name, &anneal_testkit::json_lines(log));
    let conversation = imports
        .import_ok(&[name])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        conversation.messages().await.len(),
        5,
        "the call was imported later, as a message of its own"
    );
    assert_eq!(
        conversation.checkpoints().await[0].last_message_id,
        4,
        "the file's three messages (question, answer with call, result) are stored as four"
    );
}

#[tokio::test]
async fn a_log_grows_behind_a_message_of_which_the_beginning_or_all_was_erased() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    for (user, erased) in [("beginning", vec![2]), ("all", vec![2, 3])] {
        // The text is stored as message 2, its calls as message 3.
        imports.folder.file("log.jsonl", &log[..2].concat());
        imports.import_ok(&["log.jsonl", "--user", user]).await;
        imports.folder.file("log.jsonl", &log[..4].concat());
        let conversation = imports
            .import_ok(&["log.jsonl", "--user", user])
            .await
            .pop()
            .expect("one conversation");
        let stored = list_parts(&conversation).await;
        conversation.erase(&erased).await;
        imports.folder.file("log.jsonl", &log.concat());
        let grown = imports.import(&["log.jsonl", "--user", user]).await;
        assert!(
            grown.code == Some(0) && grown.out.contains("6 messages stored, 3 there already"),
            "{user}: {grown:?}"
        );
        let left = list_parts(&conversation).await;
        let calls_left = &stored[if erased.contains(&3) { 4 } else { 2 }..];
        assert_eq!(left[0], stored[0], "{user}");
        assert_eq!(left[1..=calls_left.len()], *calls_left, "{user}");
        assert_eq!(left.len(), 1 + calls_left.len() + log.len() - 4, "{user}");
        let again = imports.import(&["log.jsonl", "--user", user]).await;
        assert!(
            again.code == Some(0) && again.out.contains("0 messages stored, 9 there already"),
            "{user}: {again:?}"
        );
    }
}

#[tokio::test]
async fn a_log_grows_behind_an_edited_message_of_which_the_first_version_is_not_kept() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    // The text is stored as message 2, its calls as message 3.
    imports.folder.file("log.jsonl", &log[..2].concat());
    imports.import_ok(&["log.jsonl"]).await;
    imports.folder.file("log.jsonl", &log[..4].concat());
    let conversation = imports
        .import_ok(&["log.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    imports.folder.file("log.jsonl", &log.concat());
    conversation.edit(2, assistant("I looked.")).await;
    delete_first_versions(&app).await;
    let grown = imports.import(&["log.jsonl"]).await;
    assert!(
        grown.code == Some(0) && grown.out.contains("6 messages stored, 3 there already"),
        "{grown:?}"
    );
    let again = imports.import(&["log.jsonl"]).await;
    assert!(
        again.code == Some(0) && again.out.contains("0 messages stored, 9 there already"),
        "{again:?}"
    );
    let texts = conversation.texts_by_role().await;
    assert_eq!(texts[1].1, "I looked.", "the edit stays");
}

#[tokio::test]
async fn parts_that_a_log_adds_to_an_erased_message_are_reported_and_not_stored() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    imports.folder.file("log.jsonl", &log[..2].concat());
    let conversation = imports
        .import_ok(&["log.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    conversation.erase(&[2]).await;
    imports.folder.file("log.jsonl", &log[..4].concat());
    let grown = imports.import(&["log.jsonl"]).await;
    assert!(
        grown.code == Some(0)
            && grown.out.contains("0 messages stored")
            && grown
                .out
                .contains("message 2 set aside: its imported content was erased"),
        "{grown:?}"
    );
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn an_erased_message_is_not_taken_for_calls_that_its_conversation_does_not_store() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("log.jsonl", &log().concat());
    let import = ["log.jsonl", "--profile", "zeroclaw"];
    let conversation = imports
        .import_ok(&import)
        .await
        .pop()
        .expect("one conversation");
    let texts = conversation.texts_by_role().await;
    assert_eq!(texts.last().expect("a text").1, "A cat.");
    conversation.erase(&[texts.len() as i64]).await;
    // The file has two calls without a text before the erased answer.
    let again = imports.import(&import).await;
    assert!(
        again.code == Some(0) && again.out.contains("0 messages stored, 5 there already"),
        "{again:?}"
    );
    let left = conversation.texts_by_role().await;
    assert_eq!(left, texts[..texts.len() - 1], "nothing erased comes back");
}

#[tokio::test]
async fn a_tool_record_that_was_repaired_later_is_reported() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = log();
    // For each user, the indexes of the records that are broken at first.
    for (user, broken) in [
        ("result", vec![4, 5]),
        ("call", vec![2, 3]),
        ("turn", vec![8, 9, 10, 11]),
    ] {
        let lines = log.iter().enumerate();
        let lines = lines.map(|(index, line)| {
            if broken.contains(&index) {
                "{oops\n"
            } else {
                line
            }
        });
        imports.folder.file("log.jsonl", &lines.collect::<String>());
        let import = [
            "log.jsonl",
            "--format",
            "claw0",
            "--user",
            user,
            "--report",
            "report.jsonl",
        ];
        let first = imports.import(&import).await;
        assert_eq!(first.code, Some(1), "{first:?}");
        let stored = imports.conversations(&first)[0].as_new_messages().await;
        imports.folder.file("log.jsonl", &log.concat());
        let repaired = imports.import(&import).await;
        assert_eq!(
            imports.conversations(&repaired)[0].as_new_messages().await,
            stored,
            "{user}: the stored messages are unchanged"
        );
        let report = std::fs::read_to_string(imports.folder.path().join("report.jsonl"))
            .expect("the report is there");
        let is_reported = report.contains("tools were not in the file at the first import")
            || report.contains("was rewritten");
        assert!(
            repaired.code == Some(1) && is_reported,
            "{user}: {repaired:?}"
        );
        assert!(
            !repaired.out.contains("tool messages not kept"),
            "{user}: the conversation keeps tools: {repaired:?}"
        );
    }
}
