//! `anneal import` of a claw0 log that is in use: cut after any record, grown by any record, it says the same in the end.

use anneal_tests::{Files, House, Talk, pb};
use serde_json::{Value, json};

use crate::BINARY;

/// A log with everything that joins: two calls after an answer, two results, a call without a word before it.
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

/// What the conversation says, however it is cut into messages: its parts, each with who says it.
async fn parts(talk: &Talk<'_>) -> Vec<(i32, pb::Part)> {
    let given = talk.given().await.into_iter();
    given.flat_map(|message| message.parts.into_iter().map(move |part| (message.role, part))).collect()
}

/// Records after which the next one is a call beside another: cut there, contexts show the two one after the other.
const BESIDE: [usize; 2] = [3, 9];

/// The blocks of what Anthropic would be sent, by their kinds and what they name.
fn blocks(sent: &Value) -> Vec<String> {
    let messages = sent["messages"].as_array().expect("messages").iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().expect("blocks"));
    let mut blocks: Vec<String> = blocks.map(Value::to_string).collect();
    blocks.sort();
    blocks
}

/// What Anthropic would be sent of it.
async fn sent(talk: &Talk<'_>) -> Value {
    let ask = pb::BuildContextRequest {
        conversation_id: talk.id.clone(),
        format: pb::Format::AnthropicMessages.into(),
        ..Default::default()
    };
    let built = talk.house.contexts().build_context(ask).await.expect("builds").into_inner();
    serde_json::from_str(&built.rendered.expect("is rendered")).expect("JSON")
}

/// The times of the records, as the conversation's labels have them.
async fn times(talk: &Talk<'_>) -> Vec<String> {
    let given = talk.given().await.into_iter();
    given.flat_map(|message| message.metadata["claw0.ts"].split(' ').map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn a_log_that_grows_after_any_record_is_imported_as_if_at_once() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let log = log();
    files.folder.file("log.jsonl", &log.concat());
    let whole = files.imported(&["log.jsonl", "--user", "at once"]).await.pop().expect("one");
    let (said, asked, spoken) = (parts(&whole).await, sent(&whole).await, times(&whole).await);
    assert_eq!((whole.messages().await.len(), said.len()), (8, log.len()));
    for cut in 1..log.len() {
        let user = format!("cut after {cut}");
        files.folder.file("log.jsonl", &log[..cut].concat());
        let first = files.imported(&["log.jsonl", "--user", &user]).await.pop().expect("one");
        assert_eq!(parts(&first).await, said[..cut], "{user}: everything that is there is imported");
        files.folder.file("log.jsonl", &log.concat());
        for _ in 0..2 {
            let grown = files.imported(&["log.jsonl", "--user", &user]).await.pop().expect("one");
            assert_eq!(grown.id, first.id);
            assert_eq!(parts(&grown).await, said, "{user}");
            let sent = sent(&grown).await;
            assert_eq!(blocks(&sent), blocks(&asked), "{user}");
            assert!(sent == asked || BESIDE.contains(&cut), "{user}: {sent}");
            grown.verify().await;
        }
        assert_eq!(times(&first).await, spoken, "{user}");
    }
}

#[tokio::test]
async fn a_log_that_is_imported_after_every_record_is_as_if_imported_at_once() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let log = log();
    for count in 1..=log.len() {
        files.folder.file("log.jsonl", &log[..count].concat());
        let ran = files.import(&["log.jsonl"]).await;
        assert!(ran.code == Some(0) && ran.out.contains("1 message stored"), "{count} records: {ran:?}");
    }
    let talk = files.imported(&["log.jsonl"]).await.pop().expect("one");
    let whole = files.imported(&["log.jsonl", "--user", "at once"]).await.pop().expect("one");
    assert_eq!(parts(&talk).await, parts(&whole).await);
    assert_eq!(blocks(&sent(&talk).await), blocks(&sent(&whole).await));
    let spoken = ["1", "2", "3.0", "3.5", "4", "5", "6", "7", "8.0", "9.0", "10", "11", "12"];
    assert_eq!(times(&talk).await, spoken, "each record keeps its own");
    // what is exported is imported as it is stored
    let exported = files.exported(&[&talk.id, "--format", "claw0"]).await;
    files.folder.file("back.jsonl", &exported);
    let back = files.imported(&["back.jsonl"]).await.pop().expect("one");
    assert_eq!(back.given().await, talk.given().await);
    talk.verify().await;
}

#[tokio::test]
async fn a_summary_after_a_message_that_has_grown_stands_for_the_same_messages() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let often = |text: &str| json!([{"type": "text", "text": text.repeat(100)}]);
    let mut log = vec![
        json!({"type": "user", "content": "What is here? ".repeat(100), "ts": 1}),
        json!({"type": "assistant", "content": often("I look. "), "ts": 2}),
    ];
    let name = "log.jsonl";
    files.folder.file(name, &anneal_tests::lines_of(log.clone()));
    files.imported(&[name]).await;
    log.extend([
        json!({"type": "tool_use", "tool_use_id": "a", "name": "look", "input": {}, "ts": 3}),
        json!({"type": "tool_result", "tool_use_id": "a", "content": "Nothing.", "ts": 4}),
        json!({"type": "assistant", "content": often("Nothing. "), "ts": 5}),
        json!({"type": "anneal", "summary": {"covers": 3, "text": "Nothing was seen."}}),
    ]);
    files.folder.file(name, &anneal_tests::lines_of(log));
    let talk = files.imported(&[name]).await.pop().expect("one");
    assert_eq!(talk.messages().await.len(), 5, "the call came later, and is a message of its own");
    assert_eq!(talk.checkpoints().await[0].last_message_id, 4, "the question, the answer, its call and the result");
}

#[tokio::test]
async fn a_repaired_record_of_tools_is_never_passed_over_in_silence() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let log = log();
    // the second result of the first turn, its only call, and all that the second turn did
    for (user, broken) in [("result", vec![4, 5]), ("call", vec![2, 3]), ("turn", vec![8, 9, 10, 11])] {
        let lines = log.iter().enumerate();
        let lines = lines.map(|(place, line)| if broken.contains(&place) { "{oops\n" } else { line });
        files.folder.file("log.jsonl", &lines.collect::<String>());
        let import = ["log.jsonl", "--format", "claw0", "--user", user, "--report", "report.jsonl"];
        let first = files.import(&import).await;
        assert_eq!(first.code, Some(1), "{first:?}");
        let stored = files.talks(&first)[0].given().await;
        files.folder.file("log.jsonl", &log.concat());
        let repaired = files.import(&import).await;
        assert_eq!(files.talks(&repaired)[0].given().await, stored, "{user}: nothing was mixed up");
        let report = std::fs::read_to_string(files.folder.path().join("report.jsonl")).expect("the report is there");
        let said =
            report.contains("tools were not there when it was imported first") || report.contains("was rewritten");
        assert!(repaired.code == Some(1) && said, "{user}: {repaired:?}");
        assert!(!repaired.out.contains("of tools not kept"), "{user}: the conversation keeps tools: {repaired:?}");
    }
}
