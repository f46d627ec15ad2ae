//! `anneal export`: what was imported comes out again, and what is exported comes in again as it was.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use std::collections::HashMap;

use anneal_tests::{Data, Files, House, Talk, assistant, claw0, pb, pi, pi_compaction, pi_said, prose, user};
use serde_json::{Value, json};

use crate::BINARY;

/// claw0's own way from records to Anthropic's messages (`_rebuild_history`), of two files; says whether they are the same.
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

/// What the conversation becomes when it is exported and imported again; the same conversation under another user.
async fn back(files: &Files<'_>, id: &str, format: &str) -> Vec<pb::NewMessage> {
    let file = format!("{id}.{format}");
    files.exported(&[id, "--format", format, "--output", &file, "--force"]).await;
    let talks = files.imported(&[&file, "--format", format, "--user", format]).await;
    assert_eq!(talks.len(), 1, "{format}");
    talks[0].verify().await;
    talks[0].given().await
}

#[tokio::test]
async fn row_C1_a_claw0_session_comes_in_and_goes_out_without_loss() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let original = files.folder.file("session.jsonl", &claw0(20));
    let talk = files.imported(&["session.jsonl"]).await.pop().expect("one");
    let given = talk.given().await;
    assert!(back(&files, &talk.id, "claw0").await == given, "export then import gives the same messages");
    let exported = files.folder.path().join(format!("{}.claw0", talk.id));
    let python = std::process::Command::new("python3").arg("-c").arg(REBUILD).arg(&original).arg(&exported).output();
    match python {
        Ok(ran) => assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "80 True", "{ran:?}"),
        Err(_) => println!("skipped: claw0's own reader needs python3"),
    }
}

#[tokio::test]
async fn row_P7_a_pi_session_comes_in_and_goes_out_without_loss() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let call = serde_json::json!({"type": "message", "message": {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "sig"}, {"type": "text", "text": "I look."},
        {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls", "n": 1.50}}], "timestamp": 2}});
    let result = serde_json::json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "t1",
        "toolName": "bash", "content": [{"type": "text", "text": "a\nb"}], "isError": true, "timestamp": 3}});
    let said = [pi_said("user", "What is here?"), call, result, pi_said("assistant", "Nothing.")];
    files.folder.file("pi.jsonl", &pi("s1", &said));
    let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
    let given = talk.given().await;
    assert_eq!(given.len(), 4);
    assert!(back(&files, &talk.id, "pi").await == given, "export then import gives the same messages");
    assert!(back(&files, &talk.id, "claw0").await == given, "and so by the way of another system");
}

#[tokio::test]
async fn row_P7_real_files_load_and_every_message_comes_back() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let (mut conversations, mut messages) = (0, 0);
    for folder in ["pi-sessions", "swe-agent"] {
        for entry in std::fs::read_dir(data.path(folder)).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            if !path.extension().is_some_and(|ending| ending == "jsonl" || ending == "traj") {
                continue;
            }
            let path = path.to_str().expect("a path");
            for talk in files.imported(&[path]).await {
                let given = talk.given().await;
                assert!(!given.is_empty(), "{path}");
                for format in ["pi", "claw0", "openai", "anthropic", "sharegpt", "zeroclaw"] {
                    assert!(back(&files, &talk.id, format).await == given, "{path} by way of {format}");
                }
                talk.verify().await;
                conversations += 1;
                messages += given.len();
            }
        }
    }
    println!("{conversations} conversations, {messages} messages, all of them back by way of every format");
    assert!(conversations >= 6);
}

#[tokio::test]
async fn row_P5_a_checkpoint_becomes_a_compaction_entry_that_names_what_it_keeps() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation_under(pb::Policy { keep_recent_turns: Some(1), ..Default::default() }).await;
    for n in 0..4 {
        talk.turn(&prose(n * 40, 20), &prose(n * 40 + 20, 20)).await;
    }
    house.run_jobs_until_idle().await;
    talk.compact("by hand", "").await;
    let checkpoint = talk.checkpoints().await.pop().expect("one");
    assert_eq!(checkpoint.last_message_id, 6);
    talk.turn("And then?", "Nothing.").await;
    let exported = files.exported(&[&talk.id, "--format", "pi"]).await;
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let place = lines.iter().position(|line| line["type"] == "compaction").expect("a compaction entry");
    let before = lines[..place].iter().filter(|line| line["type"] == "message").count();
    assert_eq!(before, 8, "it stands where it was made");
    let messages: Vec<&Value> = lines.iter().filter(|line| line["type"] == "message").collect();
    assert_eq!(lines[place]["firstKeptEntryId"], messages[6]["id"]);
    assert_eq!(lines[place]["tokensBefore"], checkpoint.tokens_before);
    assert_eq!(lines[place]["tokensAfter"], checkpoint.tokens_after);
    assert_eq!(lines[place]["summary"], checkpoint.summary);
}

#[tokio::test]
async fn row_P5_a_compaction_goes_through_with_the_tokens_that_its_maker_counted() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let said = |n: usize| pi_said(if n.is_multiple_of(2) { "user" } else { "assistant" }, &prose(n * 20, 20));
    let mut entries: Vec<Value> = (0..12).map(said).collect();
    let mut counted = pi_compaction("They inspected turbines in Osaka.", 7);
    counted["tokensBefore"] = 81_234.into();
    counted["tokensAfter"] = 5_678.into();
    // the other knows only what was there before, as pi does
    let mut half = pi_compaction("They inspected turbines in Osaka and Kyoto.", 10);
    half["tokensBefore"] = 3.into();
    entries.extend([counted, half, said(12)]);
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
    let made = talk.checkpoints().await;
    let counts: Vec<(u64, u64)> = made.iter().rev().map(|made| (made.tokens_before, made.tokens_after)).collect();
    assert_eq!((counts[0], counts[1].0, counts.len()), ((81_234, 5_678), 3, 2));
    assert!(counts[1].1 > 0, "what the maker did not count is counted here");
    let exported = files.exported(&[&talk.id, "--format", "pi"]).await;
    let lines = exported.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let written: Vec<_> = lines.filter(|line| line["type"] == "compaction").collect();
    assert_eq!((&written[0]["tokensBefore"], &written[0]["tokensAfter"]), (&json!(81_234), &json!(5_678)));
    assert_eq!(written[1]["tokensBefore"], 3);
    talk.context().await;
    talk.verify().await;
}

#[tokio::test]
async fn row_P6_after_an_import_the_summary_stands_before_the_kept_messages() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let summary = "They inspected turbines in Osaka.";
    let said = |n: usize| [pi_said("user", &prose(n * 40, 20)), pi_said("assistant", &prose(n * 40 + 20, 20))];
    let mut entries: Vec<Value> = (0..3).flat_map(said).collect();
    entries.push(pi_compaction(summary, 5));
    entries.extend(said(3));
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    for _ in 0..2 {
        let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
        assert_eq!(talk.messages().await.len(), 8, "a compaction is no message");
        let checkpoints = talk.checkpoints().await;
        assert_eq!(checkpoints.len(), 1);
        assert_eq!(checkpoints[0].kind(), pb::SummaryKind::Imported);
        let built = talk.context().await;
        let texts: Vec<String> = built.said().into_iter().map(|(_, text)| text).collect();
        assert!(texts[0].contains(summary), "{texts:?}");
        assert_eq!(
            texts[1..],
            [prose(80, 20), prose(100, 20), prose(120, 20), prose(140, 20)],
            "only those are loaded"
        );
        talk.verify().await;
        let exported = files.exported(&[&talk.id, "--format", "pi"]).await;
        files.folder.file("again.jsonl", &exported);
        let again = files.imported(&["again.jsonl"]).await.pop().expect("one");
        assert_eq!(again.checkpoints().await[0].summary, summary, "and so it goes on to the next one");
        assert_eq!(again.context().await.said(), built.said());
    }
}

/// After which messages the conversation's separators stand.
async fn separators(talk: &Talk<'_>) -> Vec<i64> {
    let ask = pb::ListMessagesRequest { conversation_id: talk.id.clone(), page_size: 500, ..Default::default() };
    let page = talk.house.messages().list_messages(ask).await.expect("lists").into_inner();
    page.separators.into_iter().map(|separator| separator.after_message_id).collect()
}

#[tokio::test]
async fn separators_go_out_and_come_in_with_every_format() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation().await;
    talk.separate().await;
    talk.turn("One?", "One.").await;
    talk.separate().await;
    talk.turn("Two?", "Two.").await;
    talk.turn("Three?", "Three.").await;
    talk.separate().await;
    assert_eq!(separators(&talk).await, [0, 2, 6]);
    for format in ["openai", "anthropic", "claw0", "pi", "sharegpt", "zeroclaw"] {
        files.exported(&[&talk.id, "--format", format, "--output", format]).await;
        for _ in 0..2 {
            let other = files.imported(&[format, "--format", format, "--user", format]).await.pop().expect("one");
            assert_eq!(separators(&other).await, [0, 2, 6], "{format}");
            assert_eq!(other.said().await, talk.said().await, "{format}");
            assert_eq!(other.context().await.0.boundary_message_id, 6, "{format}: contexts start after it");
        }
    }
}

/// What a message of pi's says, and to whom; a text may stand for a list of one block.
fn said_by(message: &Value) -> Value {
    let names = ["role", "content", "toolCallId", "toolName", "isError", "stopReason", "provider", "model"];
    let fields = names.iter().filter_map(|name| Some(((*name).to_owned(), message.get(*name)?.clone())));
    let mut said = Value::Object(fields.collect());
    if said["content"].is_string() {
        said["content"] = json!([{"type": "text", "text": said["content"]}]);
    }
    said
}

/// The messages of a pi session as pi's own documentation tells its readers to find them: the path from the last entry to
/// the root; where a compaction is on it, its summary, what it keeps, and what follows it. Nothing of ours is looked at.
fn pi_context(file: &str) -> Vec<Value> {
    let mut entries: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for entry in &mut entries {
        entry.as_object_mut().expect("an object").remove("anneal");
    }
    let by_id: HashMap<&str, &Value> =
        entries.iter().skip(1).map(|entry| (entry["id"].as_str().expect("an id"), entry)).collect();
    let mut path: Vec<&Value> = std::iter::successors(entries.last(), |entry| {
        entry["parentId"].as_str().map(|parent| *by_id.get(parent).expect("a parent that is there"))
    })
    .collect();
    path.reverse();
    let compaction = path.iter().rposition(|entry| entry["type"] == "compaction");
    let kept = compaction.map_or(0, |place| {
        let first = &path[place]["firstKeptEntryId"];
        path[..=place].iter().position(|entry| entry["id"] == *first).expect("is on the path")
    });
    let summary = compaction.map(|place| json!({"role": "summary", "content": path[place]["summary"]}));
    let said = path[kept..].iter().filter(|entry| entry["type"] == "message").map(|entry| said_by(&entry["message"]));
    summary.into_iter().chain(said).collect()
}

#[tokio::test]
async fn row_P7_another_reader_finds_what_pi_would_send_in_the_exported_session() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let path = data.path("pi-sessions/large-session.v3.jsonl");
    let original = pi_context(&std::fs::read_to_string(&path).expect("reads"));
    let talk = files.imported(&[path.to_str().expect("a path")]).await.pop().expect("one");
    let exported = pi_context(&files.exported(&[&talk.id, "--format", "pi"]).await);
    let sent = data.json("pi-sessions/large-session.v3.context.json");
    let sent = sent.as_array().expect("a list of messages");
    assert_eq!((sent.len(), original.len(), exported.len()), (914, 914, 914));
    let (nothing, mut silent) = (json!([{"type": "text", "text": ""}]), 0);
    for (number, ((sent, original), exported)) in sent.iter().zip(&original).zip(&exported).enumerate() {
        for (field, said) in original.as_object().expect("fields") {
            assert_eq!(said_by(sent)[field], *said, "{field} of message {number}: the reader reads as pi does");
            if *said == json!([]) && exported[field] == nothing {
                silent += 1;
            } else {
                assert_eq!(exported[field], *said, "{field} of message {number}");
            }
        }
    }
    assert_eq!(silent, 14, "answers aborted before they began: a message has a part here, so theirs is an empty text");
}

#[tokio::test]
async fn row_P7_another_reader_finds_the_summary_and_the_kept_messages_in_the_exported_session() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let said = |n: usize| pi_said(if n.is_multiple_of(2) { "user" } else { "assistant" }, &prose(n * 20, 20));
    let mut entries: Vec<Value> = (0..8).map(said).collect();
    entries.push(pi_compaction("They inspected turbines in Osaka.", 7));
    entries.extend((8..10).map(said));
    let file = pi("s1", &entries);
    files.folder.file("pi.jsonl", &file);
    let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
    let texts = |file: &str| -> Vec<(Value, Value)> {
        pi_context(file).into_iter().map(|said| (said["role"].clone(), said["content"].clone())).collect()
    };
    let exported = texts(&files.exported(&[&talk.id, "--format", "pi"]).await);
    assert_eq!(exported.len(), 5, "{exported:?}");
    assert_eq!(exported, texts(&file));
}

#[tokio::test]
async fn degenerate_compactions_are_said_and_are_no_error() {
    let Some(data) = Data::find() else { return };
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let path = data.path("pi-sessions/pi-0.73.1-live-overflow.v3.jsonl");
    let ran = files.import(&[path.to_str().expect("a path"), "--report", "report.jsonl"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let talk = files.talks(&ran).pop().expect("one");
    assert_eq!(talk.messages().await.len(), 8);
    let report = std::fs::read_to_string(files.folder.path().join("report.jsonl")).expect("the report is there");
    let summaries = report.lines().filter(|line| line.contains("a compaction that")).count();
    let checkpoints = talk.checkpoints().await.len();
    println!("{checkpoints} checkpoints, {summaries} compactions set aside");
    assert_eq!(checkpoints + summaries, 4, "{report}");
    assert_eq!(checkpoints, 0, "each of them keeps everything: it stands for no message");
    talk.verify().await;
}

#[tokio::test]
async fn a_file_that_is_there_is_only_written_over_by_force() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation().await;
    talk.turn("Hello?", "Hello.").await;
    let file = files.folder.file("mine.jsonl", "mine");
    let export = [talk.id.as_str(), "--format", "claw0", "--output", "mine.jsonl"];
    let refused = files.anneal.run(&files.arguments("export", &export)).await;
    assert!(refused.code == Some(1) && refused.err.contains("--force"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("is there"), "mine");
    files.exported(&[&export[..], &["--force"]].concat()).await;
    assert_eq!(std::fs::read_to_string(&file).expect("is there").lines().count(), 3);
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    let missing = ["export", unknown, "--format", "claw0", "--output", "none.jsonl"];
    let refused = files.anneal.run(&files.arguments(missing[0], &missing[1..])).await;
    assert!(refused.code == Some(1) && refused.err.contains("not found"), "{refused:?}");
    let left: Vec<_> = std::fs::read_dir(files.folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing half written is left: {left:?}");
    let database = files.anneal.run(&files.arguments("export", &[&talk.id, "--format", "zeroclaw"])).await;
    assert!(database.code == Some(1) && database.err.contains("--output"), "{database:?}");
}

#[tokio::test]
async fn several_conversations_go_into_one_file_where_it_can_hold_them() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let (one, two) = (house.conversation().await, house.conversation().await);
    one.append_all(vec![user("One?"), assistant("One.")]).await;
    two.append_all(vec![user("Two?"), assistant("Two.")]).await;
    for format in ["openai", "anthropic", "sharegpt", "zeroclaw"] {
        files.exported(&[&one.id, &two.id, "--format", format, "--output", format]).await;
        let talks = files.imported(&[format, "--format", format, "--user", format]).await;
        assert_eq!(talks.len(), 2, "{format}");
        let mut said = vec![talks[0].said().await, talks[1].said().await];
        said.sort_by_key(|said| said[0].1.clone());
        assert_eq!(said, [one.said().await, two.said().await], "{format}");
    }
    let single = files.anneal.run(&files.arguments("export", &[&one.id, &two.id, "--format", "pi"])).await;
    assert_eq!(single.code, Some(1), "a session's file holds one: {single:?}");
}
