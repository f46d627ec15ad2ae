//! `anneal import` of files that are broken, odd or large: what can be kept is kept, the rest is said line by line.

use anneal_tests::{Files, House, pi, pi_compaction, pi_said, prose};
use serde_json::{Value, json};

use crate::BINARY;

fn asked(text: &str) -> String {
    json!({"type": "user", "content": text, "ts": 1}).to_string()
}

/// What an import's report says of this conversation, or of the file for the empty one: (line, fate), in order of lines.
fn reported(files: &Files<'_>, name: &str, conversation: &str) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(files.folder.path().join(name)).expect("the report is there");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let lines = lines.filter(|line| line["conversation"] == conversation);
    let said = |line: Value| (line["line"].as_u64().unwrap_or(0), line["fate"].as_str().expect("a fate").to_owned());
    let mut lines: Vec<_> = lines.map(said).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn broken_lines_are_refused_by_number_and_everything_else_is_kept() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let lone = r#"{"type": "user", "content": "half \ud800 a pair", "ts": 1}"#;
    let nul = r#"{"type": "user", "content": "a\u0000b", "ts": 1}"#;
    let torn = r#"{"type": "user", "content": "never fin"#;
    let lines = [
        "\u{feff}".to_owned() + &asked("first"),
        "{oops".into(),
        nul.into(),
        lone.into(),
        asked("冷たい 🧊"),
        torn.into(),
    ];
    files.folder.file("broken.jsonl", &lines.join("\r\n"));
    let import = ["broken.jsonl", "--format", "claw0", "--report", "report.jsonl"];
    let ran = files.import(&import).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("line 2 refused:") && ran.out.contains("line 6 refused:"), "{ran:?}");
    let talk = files.talks(&ran).pop().expect("one");
    let said: Vec<String> = talk.said().await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["first", "a\0b", "half \u{fffd} a pair", "冷たい 🧊"]);
    let wanted = [(2, "refused"), (4, "changed"), (6, "refused")].map(|(line, fate)| (line, fate.to_owned()));
    assert_eq!(reported(&files, "report.jsonl", &talk.id), wanted);
    assert_eq!(reported(&files, "report.jsonl", ""), []);
    let again = files.import(&import).await;
    assert!(again.out.contains("0 messages stored, 4 there already"), "{again:?}");
    talk.verify().await;
}

#[tokio::test]
async fn every_remark_is_about_its_own_conversation_and_says_its_line() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let said = |text: &str| json!({"role": "user", "content": text});
    let lines = [
        json!({"title": "one", "messages": [said("one")]}).to_string(),
        json!({"title": "two", "messages": [said("two"), {"role": "wizard"}], "beside": {}}).to_string(),
        "{oops".to_owned(),
        json!({"title": "three", "messages": [{"role": "wizard"}, said("three")]}).to_string(),
        json!({"title": "four", "anneal_marks": 7, "messages": [said("four")]}).to_string(),
    ];
    files.folder.file("chats.jsonl", &lines.join("\n"));
    let ran = files.import(&["chats.jsonl", "--report", "report.jsonl"]).await;
    let report = async |title: &str| {
        for talk in files.talks(&ran) {
            if talk.conversation().await.title == title {
                return reported(&files, "report.jsonl", &talk.id);
            }
        }
        reported(&files, "report.jsonl", "")
    };
    let owned = |wanted: &[(u64, &str)]| -> Vec<(u64, String)> {
        wanted.iter().map(|(line, fate)| (*line, (*fate).to_owned())).collect()
    };
    assert_eq!(report("one").await, []);
    assert_eq!(report("two").await, owned(&[(2, "refused"), (2, "set aside")]));
    assert_eq!(report("").await, owned(&[(3, "refused")]));
    assert_eq!(report("three").await, owned(&[(4, "refused")]));
    // its head could not be read, so that its first message names it
    assert_eq!(report("four").await, owned(&[(5, "refused")]));
    assert!(ran.out.contains("chats.jsonl line 4 entry 1 refused:"), "{ran:?}");
}

#[tokio::test]
async fn a_strict_import_takes_a_file_whole_or_not_at_all() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("broken.jsonl", &format!("{}\n{{oops\n", asked("first")));
    let many = vec![json!({"type": "text", "text": "a"}); 257];
    let large = json!({"type": "assistant", "content": many, "ts": 1});
    files.folder.file("large.jsonl", &format!("{}\n{large}\n", asked("first")));
    for (name, said) in [("broken.jsonl", "line 2"), ("large.jsonl", "256 parts")] {
        let ran = files.import(&[name, "--format", "claw0", "--strict"]).await;
        assert!(ran.code == Some(1) && ran.err.contains(said), "{ran:?}");
        assert_eq!(files.count().await, 0, "{name}");
    }
}

#[tokio::test]
async fn what_no_append_takes_is_said_and_the_rest_goes_on() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let many = vec![json!({"type": "text", "text": "a"}); 257];
    let two = [json!({"type": "text", "text": "a"}), json!({"type": "text", "text": "b".repeat(5_000_000)})];
    let lines = [
        asked("first"),
        json!({"type": "assistant", "content": many, "ts": 1}).to_string(),
        asked("second"),
        json!({"type": "tool_use", "tool_use_id": "i".repeat(129), "name": "look", "input": {}, "ts": 1}).to_string(),
        json!({"type": "assistant", "content": two, "ts": 1}).to_string(),
        asked("third"),
    ];
    files.folder.file("large.jsonl", &lines.join("\n"));
    let ran = files.import(&["large.jsonl", "--format", "claw0"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for said in
        ["line 2 refused: a message of more than 256 parts", "line 4 changed:", "message 4 refused: what it holds"]
    {
        assert!(ran.out.contains(said), "{said}: {ran:?}");
    }
    let talk = files.talks(&ran).pop().expect("one");
    let texts = async || talk.said().await.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts().await, ["first", "second", "{}", "third"]);
    files.folder.file("large.jsonl", &(lines.join("\n") + "\n" + &asked("fourth")));
    files.import(&["large.jsonl", "--format", "claw0"]).await;
    assert_eq!(
        texts().await,
        ["first", "second", "{}", "third", "fourth"],
        "found again although two were never stored"
    );
    talk.verify().await;
}

#[tokio::test]
async fn a_summary_finds_its_messages_although_one_was_refused() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let two = [json!({"type": "text", "text": "a"}), json!({"type": "text", "text": "b".repeat(5_000_000)})];
    let large = json!({"type": "message", "message": {"role": "user", "content": two, "timestamp": 1}});
    let said = |n: usize| pi_said(if n.is_multiple_of(2) { "user" } else { "assistant" }, &prose(n * 20, 20));
    let entries = [large, said(0), said(1), said(2), pi_compaction("Inspections.", 4), said(3)];
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    for _ in 0..2 {
        let ran = files.import(&["pi.jsonl"]).await;
        let talk = files.talks(&ran).pop().expect("one");
        assert_eq!(talk.messages().await.len(), 4);
        assert_eq!(talk.checkpoints().await[0].last_message_id, 2, "{ran:?}");
        talk.verify().await;
    }
}

#[tokio::test]
async fn messages_above_the_unary_limit_are_streamed_and_come_back() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let long = "0123456789 冷\n".repeat(600_000);
    let lines = [asked("small"), asked(&long), asked("after")];
    files.folder.file("long.jsonl", &lines.join("\n"));
    let talk = files.imported(&["long.jsonl", "--format", "claw0"]).await.pop().expect("one");
    let said = talk.said().await;
    assert!(said.len() == 3 && said[1].1 == long, "{} bytes", said[1].1.len());
    let again = files.import(&["long.jsonl", "--format", "claw0"]).await;
    assert!(again.out.contains("0 messages stored, 3 there already"), "{again:?}");
    let exported = files.exported(&[&talk.id, "--format", "claw0"]).await;
    assert!(exported.len() > long.len());
}

#[tokio::test]
async fn files_that_hold_no_conversation_are_refused_with_their_names() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("empty.json", "");
    files.folder.file("prose.txt", "Dear diary,\nit was cold.\n");
    std::fs::write(files.folder.path().join("noise.bin"), [0_u8, 159, 146, 150].repeat(1_000)).expect("writes");
    for name in ["empty.json", "prose.txt", "noise.bin", "missing.jsonl"] {
        let ran = files.import(&[name]).await;
        assert!(ran.code == Some(1) && ran.err.contains(name) && ran.err.starts_with("anneal: "), "{ran:?}");
    }
    assert_eq!(files.count().await, 0);
}
