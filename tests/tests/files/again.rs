//! `anneal import` beside workers, other files and other logs of the same name: nothing is mixed, lost or left half done.

use std::{io::BufRead as _, process::Stdio};

use anneal_tests::{Anneal, Files, House, Talk, claw0, eventually, lines_of, pb, pi, pi_compaction, pi_said, prose};
use serde_json::{Value, json};

use crate::BINARY;

/// What the other system made of the beginning.
const SUMMARY: &str = "They inspected turbines in Osaka.";
/// Messages that its summary leaves.
const LEFT: usize = 20;

/// A pi session of so many messages, the last but ten of them followed by a compaction that leaves [`LEFT`] in all.
fn summarised(messages: usize) -> String {
    let said = |n: usize| pi_said(if n.is_multiple_of(2) { "user" } else { "assistant" }, &prose(n, 10));
    let mut entries: Vec<Value> = (0..messages - 10).map(said).collect();
    entries.push(pi_compaction(SUMMARY, messages - LEFT + 1));
    entries.extend((messages - 10..messages).map(said));
    pi("s1", &entries)
}

/// What the import has left of a [`summarised`] session: its summary, and no trace of how it was sent.
async fn assert_whole(talk: &Talk<'_>, messages: usize) -> pb::Conversation {
    assert_eq!(talk.messages().await.len(), messages);
    let checkpoints = talk.checkpoints().await;
    let kinds: Vec<_> = checkpoints.iter().map(|made| (made.kind(), made.last_message_id)).collect();
    assert_eq!(kinds, [(pb::SummaryKind::Imported, (messages - LEFT) as i64)]);
    let row = talk.conversation().await;
    assert!(row.metadata.keys().all(|key| !key.starts_with("anneal.import")), "{row:?}");
    talk.verify().await;
    row
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_of_the_file_holds_although_a_worker_runs_meanwhile() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let _worker = Anneal::new(BINARY, &files.folder, &house.url).worker().await;
    files.folder.file("pi.jsonl", &summarised(2_000));
    for _ in 0..2 {
        let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
        assert_eq!(assert_whole(&talk, 2_000).await.policy.unwrap_or_default(), pb::Policy::default());
    }
    let set = files.imported(&["pi.jsonl", "--user", "ann", "--max-message-count", "60"]).await.pop().expect("one");
    assert_eq!(assert_whole(&set, 2_000).await.policy.expect("one").max_message_count, Some(60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_was_killed_leaves_the_wanted_policy_when_it_is_run_again() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("pi.jsonl", &summarised(6_000));
    let rest = ["pi.jsonl", "--token-threshold", "90000", "--max-message-count", "60", "--keep-recent", "3 turns"];
    let row = async || {
        let listed = house.conversations().list_conversations(pb::ListConversationsRequest::default()).await;
        listed.expect("lists").into_inner().conversations.pop().unwrap_or_default()
    };
    let killed = files.anneal.start(&files.arguments("import", &rest));
    eventually("some is stored", async || row().await.message_count > 0).await;
    killed.kill().await;
    let half = row().await;
    assert!(half.message_count < 6_000, "killed in the middle");
    let policy = half.policy.expect("one");
    assert_eq!((policy.max_message_count, policy.keep_recent_turns), (Some(0), Some(3)), "nothing trips meanwhile");
    for rest in [half.conversation_id.as_str(), "--all"] {
        let verified = files.anneal.run(&files.arguments("verify", &[rest])).await;
        let said = format!("{}: an import of it has not come to its end", half.conversation_id);
        assert!(verified.code == Some(0) && verified.out.contains(&said), "{verified:?}");
    }
    let _worker = Anneal::new(BINARY, &files.folder, &house.url).worker().await;
    let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
    let policy = assert_whole(&talk, 6_000).await.policy.expect("one");
    assert_eq!((policy.token_threshold, policy.max_message_count), (Some(90_000), Some(60)));
    assert_eq!(policy.keep_recent_turns, Some(3));
    let verified = files.anneal.run(&files.arguments("verify", &["--all"])).await;
    assert!(!verified.out.contains("an import of it"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_fails_leaves_no_triggers_off() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("pi.jsonl", &summarised(6_000));
    let row = async || {
        let listed = house.conversations().list_conversations(pb::ListConversationsRequest::default()).await;
        listed.expect("lists").into_inner().conversations.pop().unwrap_or_default()
    };
    let import = files.anneal.start(&files.arguments("import", &["pi.jsonl", "--max-message-count", "60"]));
    eventually("some is stored", async || row().await.message_count > 0).await;
    let held = row().await;
    assert_eq!(held.policy.expect("one").max_message_count, Some(0), "they are off while it is sent");
    // the conversation goes on by itself, and the server refuses what the import sends next
    Talk { house: &house, id: held.conversation_id }.append("Said here.").await;
    assert_eq!(import.ended().await, Some(1));
    let left = row().await;
    assert!(left.message_count < 6_000, "it ended in the middle");
    assert!(!left.metadata.contains_key("anneal.import.triggers"), "{left:?}");
    let policy = left.policy.expect("one");
    assert_eq!((policy.token_threshold, policy.max_message_count), (None, Some(60)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_look_again_once_the_file_is_there() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let _worker = Anneal::new(BINARY, &files.folder, &house.url).worker().await;
    files.folder.file("pi.jsonl", &summarised(200));
    let talk = files.imported(&["pi.jsonl", "--max-message-count", "15"]).await.pop().expect("one");
    eventually("the worker goes on from the summary", async || talk.checkpoints().await.len() > 1).await;
    assert_eq!(talk.checkpoints().await.pop().expect("the first").kind(), pb::SummaryKind::Imported);
}

#[tokio::test]
async fn two_logs_of_one_name_are_not_mixed_where_one_message_happens_to_be_the_same() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let log = |texts: &[&str]| {
        let record = |text: &&str| json!({"type": "user", "content": *text, "ts": 1});
        lines_of(texts.iter().map(record))
    };
    files.folder.file("main.jsonl", &log(&["Where is Osaka?", "Thanks."]));
    let talk = files.imported(&["main.jsonl"]).await.pop().expect("one");
    files.folder.file("main.jsonl", &log(&["What is a turbine?", "Thanks.", "Bye."]));
    let other = files.import(&["main.jsonl"]).await;
    assert!(other.code == Some(1) && other.out.contains("as message 1: the file was rewritten"), "{other:?}");
    assert_eq!(talk.messages().await.len(), 2, "{other:?}");
}

#[tokio::test]
async fn a_file_of_the_same_name_from_elsewhere_is_said() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    for folder in ["ann", "bob"] {
        std::fs::create_dir(files.folder.path().join(folder)).expect("makes it");
    }
    let said = |text: &str| json!({"type": "user", "content": text, "ts": 1});
    // what both begin with
    files.folder.file("ann/main.jsonl", &lines_of([said("Hello")]));
    files.folder.file("bob/main.jsonl", &lines_of([said("Hello"), said("I am Bob.")]));
    for _ in 0..2 {
        let ran = files.import(&["ann/main.jsonl"]).await;
        assert!(ran.code == Some(0) && !ran.out.contains("changed"), "{ran:?}");
    }
    let ran = files.import(&["bob/main.jsonl"]).await;
    assert!(ran.code == Some(0) && ran.out.contains("bob/main.jsonl changed: a file of this name"), "{ran:?}");
    let quiet = files.import(&["bob/main.jsonl"]).await;
    assert!(!quiet.out.contains("changed"), "it is said once: {quiet:?}");
    for rest in [["ann/main.jsonl", "--as", "ann"], ["ann/main.jsonl", "--user", "ann"]] {
        let named = files.import(&rest).await;
        assert!(named.code == Some(0) && named.out.contains("1 message stored"), "{named:?}");
    }
    assert_eq!(files.count().await, 3);
}

#[tokio::test]
async fn every_message_that_is_there_is_compared_over_pages_and_pictures() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let picture = json!({"type": "image", "mimeType": "image/png", "data": "QUJD".repeat(400_000)});
    let said = |n: usize| {
        let content = json!([{"type": "text", "text": format!("See {n}.")}, picture]);
        match n % 30 {
            0 => json!({"type": "message", "message": {"role": "user", "content": content, "timestamp": 1}}),
            _ => pi_said("user", &format!("Number {n}.")),
        }
    };
    let mut entries: Vec<Value> = (0..250).map(said).collect();
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    files.imported(&["pi.jsonl"]).await;
    entries.push(said(250));
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    let grown = files.import(&["pi.jsonl"]).await;
    assert!(grown.out.contains("1 message stored, 250 there already"), "{grown:?}");
    entries[120] = pi_said("user", "Something else.");
    entries.push(said(251));
    files.folder.file("pi.jsonl", &pi("s1", &entries));
    let rewritten = files.import(&["pi.jsonl"]).await;
    assert!(rewritten.code == Some(1) && rewritten.out.contains("as message 121:"), "{rewritten:?}");
    assert_eq!(files.talks(&rewritten)[0].messages().await.len(), 251);
}

#[tokio::test]
async fn one_bad_file_keeps_no_other_one_out() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("bad.jsonl", "Dear diary,\nit was cold.\n");
    files.folder.file("good.jsonl", &claw0(1));
    let all = ["missing.jsonl", "bad.jsonl", "good.jsonl", "--report", "report.jsonl"];
    let strict = files.import(&[&all[..], &["--strict"]].concat()).await;
    assert!(strict.code == Some(1) && strict.err.contains("missing.jsonl"), "{strict:?}");
    assert_eq!(files.count().await, 0, "a strict run ends there");
    let ran = files.import(&all).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("cannot import missing.jsonl") && ran.err.contains("cannot import bad.jsonl"), "{ran:?}");
    assert_eq!(files.talks(&ran).pop().expect("the good one").messages().await.len(), 4);
    let report = std::fs::read_to_string(files.folder.path().join("report.jsonl")).expect("the report is there");
    let refused: Vec<Value> = report.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let refused: Vec<_> = refused.iter().map(|line| (line["file"].as_str(), line["fate"].as_str())).collect();
    assert_eq!(refused, [(Some("missing.jsonl"), Some("refused")), (Some("bad.jsonl"), Some("refused"))]);
}

#[tokio::test]
async fn a_server_that_refuses_ends_the_run() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("one.jsonl", &claw0(1));
    files.folder.file("two.jsonl", &claw0(2));
    let ran = files.import(&["one.jsonl", "two.jsonl", "--agent", &"a".repeat(129)]).await;
    assert!(ran.code == Some(1) && ran.err.contains("one.jsonl") && !ran.err.contains("two.jsonl"), "{ran:?}");
}

#[tokio::test]
async fn a_conversation_that_kept_tools_at_first_and_then_none_is_found_again() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("claw.jsonl", &claw0(2));
    let talk = files.imported(&["claw.jsonl"]).await.pop().expect("one");
    assert_eq!(talk.messages().await.len(), 8);
    files.folder.file("claw.jsonl", &claw0(3));
    for _ in 0..2 {
        files.imported(&["claw.jsonl", "--profile", "zeroclaw"]).await;
        let texts: Vec<String> = talk.said().await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts[8..], ["What is in file 2?", "I look.", "Line 2."]);
    }
    files.folder.file("claw.jsonl", &claw0(4));
    let grown = files.import(&["claw.jsonl"]).await;
    assert!(grown.code == Some(0) && talk.messages().await.len() == 14, "{grown:?}");
    talk.verify().await;
}

#[tokio::test]
async fn an_import_goes_on_when_nobody_reads_what_it_prints() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let names: Vec<String> = (0..5).map(|n| format!("{n}.jsonl")).collect();
    for (turns, name) in (1..).zip(&names) {
        files.folder.file(name, &claw0(turns));
    }
    let rest: Vec<&str> = names.iter().map(String::as_str).collect();
    let arguments = files.arguments("import", &rest);
    let mut import = std::process::Command::new(BINARY);
    import.args(&arguments).current_dir(files.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut import = import.spawn().expect("the binary starts");
    let ended = tokio::task::spawn_blocking(move || {
        let mut out = std::io::BufReader::new(import.stdout.take().expect("is piped"));
        out.read_line(&mut String::new()).expect("reads");
        drop(out);
        import.wait_with_output().expect("ends")
    });
    let ended = ended.await.expect("no panic");
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(files.count().await, 5);
}

#[tokio::test]
async fn the_name_of_a_file_does_not_take_the_terminal_over() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let name = "a\u{1b}[2Jb.jsonl";
    files.folder.file(name, &format!("{}{{oops\n", claw0(1)));
    let missing = "none\u{1b}[2J.jsonl";
    let ran = files.import(&[name, missing, "--format", "claw0"]).await;
    assert!(ran.out.contains("a\u{fffd}[2Jb.jsonl: 1 conversation") && ran.out.contains("line 6 refused"), "{ran:?}");
    assert!(ran.err.contains("none\u{fffd}[2J.jsonl"), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
}

#[tokio::test]
async fn a_report_holds_every_remark_however_many_there_are() {
    const REMARKS: usize = 100_100;
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("broken.jsonl", &(claw0(1) + &"{oops\n".repeat(REMARKS)));
    let ran = files.import(&["broken.jsonl", "--format", "claw0", "--report", "report.jsonl"]).await;
    assert!(ran.out.contains("100100 refused") && ran.out.contains("… and 100080 more"), "{ran:?}");
    let report = std::fs::read_to_string(files.folder.path().join("report.jsonl")).expect("the report is there");
    assert_eq!(report.lines().count(), REMARKS);
    assert!(report.lines().last().expect("one").contains(&format!("\"line\":{}", REMARKS + 5)));
}
