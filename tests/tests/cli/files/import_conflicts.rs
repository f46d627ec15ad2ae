//! `anneal import` while a worker runs, of several files, and of other logs with the same name:
//! conversations are not mixed, and a failed import leaves no trigger switched off. The last tests
//! are of the import's output and its report.

use std::{io::BufRead as _, process::Stdio};

use anneal_testkit::{
    AnnealBinary, ImportFolder, TestApp, TestConversation, claw0_session, eventually, json_lines,
    pb, pi_compaction, pi_message, pi_session, prose,
};
use serde_json::{Value, json};

use crate::files::BINARY;

/// The other system's summary of the first messages.
const SUMMARY: &str = "They inspected turbines in Osaka.";
/// Number of the newest messages, which the summary does not cover.
const KEPT_MESSAGES: usize = 20;

/// A pi session of this many messages. Before the last ten it has a compaction that keeps the last
/// [`KEPT_MESSAGES`] messages.
fn session_with_compaction(messages: usize) -> String {
    let message = |n: usize| {
        pi_message(
            if n.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            },
            &prose(n, 10),
        )
    };
    let mut entries: Vec<Value> = (0..messages - 10).map(message).collect();
    // The first kept message comes before the compaction, so its entry, counted from 1, has the
    // number of the message.
    entries.push(pi_compaction(SUMMARY, messages - KEPT_MESSAGES + 1));
    entries.extend((messages - 10..messages).map(message));
    pi_session("s1", &entries)
}

/// Asserts that a [`session_with_compaction`] is imported with its summary, and that the import has
/// removed its own metadata. Returns the conversation.
async fn assert_complete(conversation: &TestConversation<'_>, messages: usize) -> pb::Conversation {
    assert_eq!(conversation.messages().await.len(), messages);
    let checkpoints = conversation.checkpoints().await;
    let kinds: Vec<_> = checkpoints
        .iter()
        .map(|checkpoint| (checkpoint.kind(), checkpoint.last_message_id))
        .collect();
    assert_eq!(
        kinds,
        [(pb::SummaryKind::Imported, (messages - KEPT_MESSAGES) as i64)]
    );
    let row = conversation.conversation().await;
    assert!(
        row.metadata
            .keys()
            .all(|key| !key.starts_with("anneal.import")),
        "{row:?}"
    );
    conversation.verify().await;
    row
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_summary_of_a_file_stays_valid_while_a_worker_runs() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let _worker = AnnealBinary::new(BINARY, &imports.folder, &app.url)
        .worker()
        .await;
    imports
        .folder
        .file("pi.jsonl", &session_with_compaction(2_000));
    for _ in 0..2 {
        let conversation = imports
            .import_ok(&["pi.jsonl"])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(
            assert_complete(&conversation, 2_000)
                .await
                .policy
                .unwrap_or_default(),
            pb::Policy::default()
        );
    }
    let with_option = imports
        .import_ok(&["pi.jsonl", "--user", "ann", "--max-message-count", "60"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        assert_complete(&with_option, 2_000)
            .await
            .policy
            .expect("a policy")
            .max_message_count,
        Some(60)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_repeated_after_a_kill_leaves_the_requested_policy() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports
        .folder
        .file("pi.jsonl", &session_with_compaction(6_000));
    let import_arguments = [
        "pi.jsonl",
        "--token-threshold",
        "90000",
        "--max-message-count",
        "60",
        "--keep-recent",
        "3 turns",
    ];
    let read_conversation = async || {
        let listed = app
            .conversations()
            .list_conversations(pb::ListConversationsRequest::default())
            .await;
        listed
            .expect("lists")
            .into_inner()
            .conversations
            .pop()
            .unwrap_or_default()
    };
    let killed = imports
        .anneal
        .start(&imports.arguments("import", &import_arguments));
    eventually("some messages are stored", async || {
        read_conversation().await.message_count > 0
    })
    .await;
    killed.kill().await;
    let interrupted = read_conversation().await;
    assert!(
        interrupted.message_count < 6_000,
        "the import was killed before its end"
    );
    let policy = interrupted.policy.expect("a policy");
    assert_eq!(
        (policy.max_message_count, policy.keep_recent_turns),
        (Some(0), Some(3)),
        "the triggers are off during the import"
    );
    for selection in [interrupted.conversation_id.as_str(), "--all"] {
        let verified = imports
            .anneal
            .run(&imports.arguments("verify", &[selection]))
            .await;
        let remark = format!(
            "{}: an import into it did not finish",
            interrupted.conversation_id
        );
        assert!(
            verified.code == Some(0) && verified.out.contains(&remark),
            "{verified:?}"
        );
    }
    let _worker = AnnealBinary::new(BINARY, &imports.folder, &app.url)
        .worker()
        .await;
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let policy = assert_complete(&conversation, 6_000)
        .await
        .policy
        .expect("a policy");
    assert_eq!(
        (policy.token_threshold, policy.max_message_count),
        (Some(90_000), Some(60))
    );
    assert_eq!(policy.keep_recent_turns, Some(3));
    let verified = imports
        .anneal
        .run(&imports.arguments("verify", &["--all"]))
        .await;
    assert!(!verified.out.contains("an import into it"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_fails_switches_the_triggers_on_again() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports
        .folder
        .file("pi.jsonl", &session_with_compaction(6_000));
    let read_conversation = async || {
        let listed = app
            .conversations()
            .list_conversations(pb::ListConversationsRequest::default())
            .await;
        listed
            .expect("lists")
            .into_inner()
            .conversations
            .pop()
            .unwrap_or_default()
    };
    let import = imports
        .anneal
        .start(&imports.arguments("import", &["pi.jsonl", "--max-message-count", "60"]));
    eventually("some messages are stored", async || {
        read_conversation().await.message_count > 0
    })
    .await;
    let during_import = read_conversation().await;
    assert_eq!(
        during_import.policy.expect("a policy").max_message_count,
        Some(0),
        "the triggers are off during the import"
    );
    // An append from elsewhere makes the server refuse the import's next append.
    TestConversation {
        app: &app,
        id: during_import.conversation_id,
    }
    .append("Said here.")
    .await;
    assert_eq!(import.wait_for_exit().await, Some(1));
    let afterwards = read_conversation().await;
    assert!(
        afterwards.message_count < 6_000,
        "the import failed before its end"
    );
    assert!(
        !afterwards.metadata.contains_key("anneal.import.triggers"),
        "{afterwards:?}"
    );
    let policy = afterwards.policy.expect("a policy");
    assert_eq!(
        (policy.token_threshold, policy.max_message_count),
        (None, Some(60))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_are_evaluated_after_the_import_has_ended() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let _worker = AnnealBinary::new(BINARY, &imports.folder, &app.url)
        .worker()
        .await;
    imports
        .folder
        .file("pi.jsonl", &session_with_compaction(200));
    let conversation = imports
        .import_ok(&["pi.jsonl", "--max-message-count", "15"])
        .await
        .pop()
        .expect("one conversation");
    eventually("the worker makes the next checkpoint", async || {
        conversation.checkpoints().await.len() > 1
    })
    .await;
    assert_eq!(
        conversation
            .checkpoints()
            .await
            .pop()
            .expect("the first")
            .kind(),
        pb::SummaryKind::Imported
    );
}

#[tokio::test]
async fn two_logs_of_one_name_that_share_a_message_are_not_mixed() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let log = |texts: &[&str]| {
        let record = |text: &&str| json!({"type": "user", "content": *text, "ts": 1});
        json_lines(texts.iter().map(record))
    };
    imports
        .folder
        .file("main.jsonl", &log(&["Where is Osaka?", "Thanks."]));
    let conversation = imports
        .import_ok(&["main.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    imports.folder.file(
        "main.jsonl",
        &log(&["What is a turbine?", "Thanks.", "Bye."]),
    );
    let other = imports.import(&["main.jsonl"]).await;
    assert!(
        other.code == Some(1)
            && other.out.contains("message 1 of conversation")
            && other.out.contains("the file was rewritten"),
        "{other:?}"
    );
    assert_eq!(conversation.messages().await.len(), 2, "{other:?}");
}

#[tokio::test]
async fn an_import_reports_that_a_file_of_the_same_name_came_from_another_folder() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    for folder in ["ann", "bob"] {
        std::fs::create_dir(imports.folder.path().join(folder)).expect("creates the folder");
    }
    let record = |text: &str| json!({"type": "user", "content": text, "ts": 1});
    // Both files begin with the same record.
    imports
        .folder
        .file("ann/main.jsonl", &json_lines([record("Hello")]));
    imports.folder.file(
        "bob/main.jsonl",
        &json_lines([record("Hello"), record("I am Bob.")]),
    );
    for _ in 0..2 {
        let ran = imports.import(&["ann/main.jsonl"]).await;
        assert!(
            ran.code == Some(0) && !ran.out.contains("changed"),
            "{ran:?}"
        );
    }
    let ran = imports.import(&["bob/main.jsonl"]).await;
    assert!(
        ran.code == Some(0)
            && ran
                .out
                .contains("bob/main.jsonl changed: a file of the same name"),
        "{ran:?}"
    );
    let second = imports.import(&["bob/main.jsonl"]).await;
    assert!(
        !second.out.contains("changed"),
        "the other folder is reported once: {second:?}"
    );
    for arguments in [
        ["ann/main.jsonl", "--as", "ann"],
        ["ann/main.jsonl", "--user", "ann"],
    ] {
        let named = imports.import(&arguments).await;
        assert!(
            named.code == Some(0) && named.out.contains("1 message stored"),
            "{named:?}"
        );
    }
    assert_eq!(imports.count_conversations().await, 3);
}

#[tokio::test]
async fn an_import_compares_the_file_with_all_stored_messages_also_with_pictures() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    // Each picture has 1.6 MB in base64. The import reads pages of 100 messages, so a page has up
    // to four pictures.
    let picture = json!({"type": "image", "mimeType": "image/png", "data": "QUJD".repeat(400_000)});
    let entry = |n: usize| {
        let content = json!([{"type": "text", "text": format!("See {n}.")}, picture]);
        match n % 30 {
            0 => {
                json!({"type": "message", "message": {"role": "user", "content": content, "timestamp": 1}})
            }
            _ => pi_message("user", &format!("Number {n}.")),
        }
    };
    let mut entries: Vec<Value> = (0..250).map(entry).collect();
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    imports.import_ok(&["pi.jsonl"]).await;
    entries.push(entry(250));
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    let grown = imports.import(&["pi.jsonl"]).await;
    assert!(
        grown.out.contains("1 message stored, 250 there already"),
        "{grown:?}"
    );
    entries[120] = pi_message("user", "Something else.");
    entries.push(entry(251));
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    let rewritten = imports.import(&["pi.jsonl"]).await;
    assert!(
        rewritten.code == Some(1) && rewritten.out.contains("message 121 of conversation"),
        "{rewritten:?}"
    );
    assert_eq!(
        imports.conversations(&rewritten)[0].messages().await.len(),
        251
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_imported_does_not_stop_the_import_of_the_others() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports
        .folder
        .file("bad.jsonl", "Dear diary,\nit was cold.\n");
    imports.folder.file("good.jsonl", &claw0_session(1));
    let all = [
        "missing.jsonl",
        "bad.jsonl",
        "good.jsonl",
        "--report",
        "report.jsonl",
    ];
    let strict = imports.import(&[&all[..], &["--strict"]].concat()).await;
    assert!(
        strict.code == Some(1) && strict.err.contains("missing.jsonl"),
        "{strict:?}"
    );
    assert_eq!(
        imports.count_conversations().await,
        0,
        "a strict import ends at the first error"
    );
    let ran = imports.import(&all).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err.contains("cannot import missing.jsonl")
            && ran.err.contains("cannot import bad.jsonl"),
        "{ran:?}"
    );
    assert_eq!(
        imports
            .conversations(&ran)
            .pop()
            .expect("the good file's conversation")
            .messages()
            .await
            .len(),
        4
    );
    let report = std::fs::read_to_string(imports.folder.path().join("report.jsonl"))
        .expect("the report is there");
    let refused: Vec<Value> = report
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let refused: Vec<_> = refused
        .iter()
        .map(|line| (line["file"].as_str(), line["fate"].as_str()))
        .collect();
    assert_eq!(
        refused,
        [
            (Some("missing.jsonl"), Some("refused")),
            (Some("bad.jsonl"), Some("refused"))
        ]
    );
}

#[tokio::test]
async fn an_import_ends_when_the_server_refuses_a_request() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("one.jsonl", &claw0_session(1));
    imports.folder.file("two.jsonl", &claw0_session(2));
    // An agent's id may have 128 bytes.
    let ran = imports
        .import(&["one.jsonl", "two.jsonl", "--agent", &"a".repeat(129)])
        .await;
    assert!(
        ran.code == Some(1) && ran.err.contains("one.jsonl") && !ran.err.contains("two.jsonl"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_conversation_that_stops_storing_tools_is_found_again() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw.jsonl", &claw0_session(2));
    let conversation = imports
        .import_ok(&["claw.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(conversation.messages().await.len(), 8);
    imports.folder.file("claw.jsonl", &claw0_session(3));
    for _ in 0..2 {
        imports
            .import_ok(&["claw.jsonl", "--profile", "zeroclaw"])
            .await;
        let texts: Vec<String> = conversation
            .texts_by_role()
            .await
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(texts[8..], ["What is in file 2?", "I look.", "Line 2."]);
    }
    imports.folder.file("claw.jsonl", &claw0_session(4));
    let grown = imports.import(&["claw.jsonl"]).await;
    assert!(
        grown.code == Some(0) && conversation.messages().await.len() == 14,
        "of each new turn, three messages and no tool result are stored: {grown:?}"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn an_import_continues_when_its_standard_output_is_closed() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let names: Vec<String> = (0..5).map(|n| format!("{n}.jsonl")).collect();
    for (turns, name) in (1..).zip(&names) {
        imports.folder.file(name, &claw0_session(turns));
    }
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let arguments = imports.arguments("import", &files);
    let mut import = std::process::Command::new(BINARY);
    import
        .args(&arguments)
        .current_dir(imports.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut import = import.spawn().expect("the binary starts");
    let ended = tokio::task::spawn_blocking(move || {
        let mut out = std::io::BufReader::new(import.stdout.take().expect("is piped"));
        out.read_line(&mut String::new()).expect("reads");
        drop(out);
        import.wait_with_output().expect("ends")
    });
    let ended = ended.await.expect("no panic");
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(imports.count_conversations().await, 5);
}

#[tokio::test]
async fn control_characters_in_a_file_name_are_escaped() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let name = "a\u{1b}[2Jb.jsonl";
    imports
        .folder
        .file(name, &format!("{}{{oops\n", claw0_session(1)));
    let missing = "none\u{1b}[2J.jsonl";
    let ran = imports.import(&[name, missing, "--format", "claw0"]).await;
    assert!(
        ran.out.contains("a\u{fffd}[2Jb.jsonl: 1 conversation")
            && ran.out.contains("line 6 refused"),
        "the session before the broken line has five lines: {ran:?}"
    );
    assert!(ran.err.contains("none\u{fffd}[2J.jsonl"), "{ran:?}");
    assert!(
        !ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_report_lists_all_of_100100_refused_lines() {
    const REFUSED_LINES: usize = 100_100;
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file(
        "broken.jsonl",
        &format!("{}{}", claw0_session(1), "{oops\n".repeat(REFUSED_LINES)),
    );
    let ran = imports
        .import(&[
            "broken.jsonl",
            "--format",
            "claw0",
            "--report",
            "report.jsonl",
        ])
        .await;
    // The import prints the first 20. The session before them has five lines.
    assert!(
        ran.out.contains("100100 refused") && ran.out.contains("… and 100080 more"),
        "{ran:?}"
    );
    let report = std::fs::read_to_string(imports.folder.path().join("report.jsonl"))
        .expect("the report is there");
    assert_eq!(report.lines().count(), REFUSED_LINES);
    assert!(
        report
            .lines()
            .last()
            .expect("a line")
            .contains(&format!("\"line\":{}", REFUSED_LINES + 5))
    );
}
