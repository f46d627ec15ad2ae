//! `anneal import` that is run again: after it was killed, after the file has grown, or with the
//! same file. It also continues after a lost connection. Every message is stored once.

use anneal_testkit::{
    AnnealBinary, ImportFolder, TcpProxy, TestApp, assistant, claw0_session, eventually,
    gate_or_nightly, json_lines, pb, pi_message, pi_session, user,
};

use crate::files::{BINARY, delete_first_versions};

/// A conversation of this many turns in OpenAI's format, as JSON lines with a system prompt.
fn openai_lines(turns: usize) -> String {
    let mut lines = vec![serde_json::json!({"role": "system", "content": "Be brief."})];
    for n in 0..turns {
        lines.push(serde_json::json!({"role": "user", "content": format!("What is the capital of country {n}?")}));
        lines.push(serde_json::json!({"role": "assistant", "content": format!("The capital is City-{n}.")}));
    }
    json_lines(lines)
}

#[tokio::test]
async fn a_second_import_adds_nothing_in_any_format() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("chat.jsonl", &openai_lines(3));
    imports.folder.file("session.jsonl", &claw0_session(3));
    imports.folder.file(
        "pi.jsonl",
        &pi_session(
            "s1",
            &[
                pi_message("user", "Hello?"),
                pi_message("assistant", "Hello."),
            ],
        ),
    );
    let all = ["chat.jsonl", "session.jsonl", "pi.jsonl"];
    let first = imports.import_ok(&all).await;
    assert_eq!(first[0].conversation().await.system_prompt, "Be brief.");
    let again = imports.import(&all).await;
    assert_eq!(
        again.out.matches(", 0 messages stored, ").count(),
        3,
        "{again:?}"
    );
    let ids = |conversations: &[anneal_testkit::TestConversation<'_>]| {
        conversations
            .iter()
            .map(|conversation| conversation.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&imports.conversations(&again)), ids(&first));
    assert_eq!(imports.count_conversations().await, 3);
    imports.folder.file("renamed.jsonl", &openai_lines(3));
    imports.import_ok(&["renamed.jsonl"]).await;
    assert_eq!(
        imports.count_conversations().await,
        3,
        "a conversation without a name is identified by its content"
    );
    imports.import_ok(&["chat.jsonl", "--agent", "other"]).await;
    assert_eq!(
        imports.count_conversations().await,
        4,
        "another agent has another conversation"
    );
    for conversation in first {
        conversation.verify().await;
    }
}

#[tokio::test]
async fn an_import_of_a_grown_session_adds_only_the_new_messages() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let entries = [
        pi_message("user", "One?"),
        pi_message("assistant", "One."),
        pi_message("user", "Two?"),
    ];
    for (name, short, long) in [
        ("claw.jsonl", claw0_session(2), claw0_session(40)),
        (
            "pi.jsonl",
            pi_session("s1", &entries[..2]),
            pi_session("s1", &entries),
        ),
    ] {
        imports.folder.file(name, &short);
        let first = imports
            .import_ok(&[name])
            .await
            .pop()
            .expect("one conversation");
        let before = first.as_new_messages().await;
        imports.folder.file(name, &long);
        let grown = imports
            .import_ok(&[name])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(grown.id, first.id, "{name}");
        let after = grown.as_new_messages().await;
        assert!(
            after.len() > before.len() && after.starts_with(&before),
            "{name}: {} messages",
            after.len()
        );
        let whole = imports
            .import_ok(&[name, "--user", "somebody"])
            .await
            .pop()
            .expect("one conversation")
            .as_new_messages()
            .await;
        assert_eq!(
            after, whole,
            "{name}: the same messages as if imported at once"
        );
        grown.verify().await;
    }
}

#[tokio::test]
async fn a_session_grows_after_its_messages_were_edited_and_is_still_compared() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("session.jsonl", &claw0_session(2));
    let conversation = imports
        .import_ok(&["session.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    for text in ["What is in any file?", "What is in no file?"] {
        conversation.edit(1, user(text)).await;
    }
    conversation.edit(4, assistant("Line nought.")).await;
    conversation.withdraw(&[4]).await;
    imports.folder.file("session.jsonl", &claw0_session(3));
    let grown = imports.import(&["session.jsonl"]).await;
    assert!(
        grown.code == Some(0) && grown.out.contains("4 messages stored, 8 there already"),
        "{grown:?}"
    );
    let texts = conversation.texts_by_role().await;
    assert_eq!(texts[0].1, "What is in no file?", "the edit stays");
    assert_eq!(texts.len(), 11);

    let rewritten = claw0_session(4).replace("Line 0.", "Line 00.");
    imports.folder.file("session.jsonl", &rewritten);
    let refused = imports.import(&["session.jsonl"]).await;
    assert!(
        refused.code == Some(1) && refused.out.contains("message 4 of conversation"),
        "{refused:?}"
    );
    assert_eq!(conversation.conversation().await.message_count, 12);
    conversation.verify().await;
}

#[tokio::test]
async fn a_session_grows_after_the_first_versions_of_its_edited_messages_were_erased() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("session.jsonl", &claw0_session(2));
    let conversation = imports
        .import_ok(&["session.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    conversation.edit(1, user("What is in no file?")).await;
    // Of a withdrawn message, the version that was withdrawn last is erased last.
    conversation.edit(4, assistant("Line nought.")).await;
    conversation.withdraw(&[4]).await;
    delete_first_versions(&app).await;
    imports.folder.file("session.jsonl", &claw0_session(3));
    let grown = imports.import(&["session.jsonl"]).await;
    assert!(
        grown.code == Some(0) && grown.out.contains("4 messages stored, 8 there already"),
        "{grown:?}"
    );
    let texts = conversation.texts_by_role().await;
    assert_eq!(texts[0].1, "What is in no file?", "the edit stays");
    conversation.verify().await;
}

#[tokio::test]
async fn a_file_that_was_rewritten_or_whose_conversation_has_continued_is_refused_with_a_reason() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let session = |last: &str| {
        pi_session(
            "s1",
            &[pi_message("user", "One?"), pi_message("assistant", last)],
        )
    };
    imports.folder.file("pi.jsonl", &session("One."));
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    imports.folder.file("pi.jsonl", &session("Uno."));
    let rewritten = imports.import(&["pi.jsonl"]).await;
    assert_eq!(rewritten.code, Some(1), "{rewritten:?}");
    assert!(
        rewritten.out.contains("the file was rewritten"),
        "{rewritten:?}"
    );
    imports.folder.file("pi.jsonl", &session("One."));
    conversation.append("Said here.").await;
    let same = imports.import(&["pi.jsonl"]).await;
    assert_eq!(same.code, Some(0), "the file holds nothing new: {same:?}");
    let more = [
        pi_message("user", "One?"),
        pi_message("assistant", "One."),
        pi_message("user", "Said there."),
    ];
    imports.folder.file("pi.jsonl", &pi_session("s1", &more));
    let continued = imports.import(&["pi.jsonl"]).await;
    assert!(
        continued.code == Some(1)
            && continued
                .out
                .contains("others have appended to the conversation"),
        "{continued:?}"
    );
    assert_eq!(conversation.messages().await.len(), 3);
}

#[tokio::test]
async fn a_conversation_without_tool_messages_is_found_again_and_grows() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw.jsonl", &claw0_session(2));
    let import = ["claw.jsonl", "--profile", "zeroclaw"];
    let conversation = imports
        .import_ok(&import)
        .await
        .pop()
        .expect("one conversation");
    let texts = async || {
        conversation
            .texts_by_role()
            .await
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
    };
    let two = [
        "What is in file 0?",
        "I look.",
        "Line 0.",
        "What is in file 1?",
        "I look.",
        "Line 1.",
    ];
    assert_eq!(texts().await, two, "tool calls and results are not stored");
    for _ in 0..2 {
        imports.import_ok(&import).await;
        assert_eq!(texts().await, two);
    }
    imports.folder.file("claw.jsonl", &claw0_session(3));
    imports.import_ok(&import).await;
    assert_eq!(
        texts().await[6..],
        ["What is in file 2?", "I look.", "Line 2."]
    );
    conversation.verify().await;
}

/// Reads how many messages the newest conversation has.
async fn count_messages(imports: &ImportFolder<'_>) -> i64 {
    let listed = imports
        .app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await;
    listed
        .expect("lists")
        .into_inner()
        .conversations
        .first()
        .map_or(0, |row| row.message_count)
}

/// Kills this many imports of the file before they end, then imports it completely.
async fn kill_and_complete(imports: &ImportFolder<'_>, name: &str, kills: usize) {
    let anneal: &AnnealBinary = &imports.anneal;
    for _ in 0..kills {
        let before = count_messages(imports).await;
        let killed = anneal.start(&imports.arguments("import", &[name]));
        eventually("more messages are stored", async || {
            count_messages(imports).await > before
        })
        .await;
        killed.kill().await;
    }
    imports.import_ok(&[name]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_killed_three_times_stores_every_message_once() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw.jsonl", &claw0_session(2_000));
    kill_and_complete(&imports, "claw.jsonl", 3).await;
    let whole = imports
        .import_ok(&["claw.jsonl", "--user", "at once"])
        .await
        .pop()
        .expect("one conversation");
    let killed = imports
        .import_ok(&["claw.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let killed_messages = killed.as_new_messages().await;
    let whole_messages = whole.as_new_messages().await;
    assert!(
        killed_messages == whole_messages,
        "{} messages, {} at once",
        killed_messages.len(),
        whole_messages.len()
    );
    killed.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_whose_connection_is_lost_continues_on_another_one() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw.jsonl", &claw0_session(2_000));
    let proxy = TcpProxy::to_port(app.addresses.grpc.port()).await;
    let address = format!("http://127.0.0.1:{}", proxy.port());
    let import = imports
        .anneal
        .start(&["import", "--address", &address, "claw.jsonl"]);
    for _ in 0..3 {
        let before = count_messages(&imports).await;
        eventually("more messages are stored", async || {
            count_messages(&imports).await > before
        })
        .await;
        proxy.close_connections();
    }
    assert_eq!(import.wait_for_exit().await, Some(0));
    let (conversations, messages) = (
        imports.count_conversations().await,
        count_messages(&imports).await,
    );
    imports.import_ok(&["claw.jsonl"]).await;
    assert_eq!(
        (
            imports.count_conversations().await,
            count_messages(&imports).await
        ),
        (conversations, messages),
        "another import adds nothing"
    );
}

#[tokio::test]
async fn with_all_branches_each_branch_of_a_session_becomes_a_conversation() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    // `pi_session` gives this id to the first entry, the question.
    let question_id = "00000001";
    let mut left = pi_message("assistant", "Left.");
    left["parentId"] = question_id.into();
    let mut right = pi_message("assistant", "Right.");
    right["parentId"] = question_id.into();
    imports.folder.file(
        "pi.jsonl",
        &pi_session("s1", &[pi_message("user", "Where?"), left, right]),
    );
    let active = imports.import_ok(&["pi.jsonl"]).await;
    assert_eq!(active.len(), 1);
    assert_eq!(
        active[0].texts_by_role().await[1].1,
        "Right.",
        "without the option, the branch of the last entry is imported"
    );
    for _ in 0..2 {
        let both = imports.import_ok(&["pi.jsonl", "--all-branches"]).await;
        let mut answers = Vec::new();
        for conversation in &both {
            answers.push(conversation.texts_by_role().await[1].1.clone());
        }
        answers.sort();
        assert_eq!(answers, ["Left.", "Right."]);
        assert_eq!(
            imports.count_conversations().await,
            2,
            "the active branch is the conversation of the first import"
        );
    }
}

#[tokio::test]
async fn import_reads_pipes_and_applies_the_options() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let options = [
        "--format",
        "claw0",
        "--as",
        "s7",
        "--agent",
        "bot",
        "--user",
        "ann",
        "--max-message-count",
        "7",
    ];
    for pipe in ["-", "-", "/dev/stdin"] {
        let arguments = imports.arguments("import", &[&[pipe][..], &options].concat());
        let ran = imports
            .anneal
            .run_with_input(&arguments, &claw0_session(1))
            .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let row = imports.conversations(&ran)[0].conversation().await;
        assert_eq!(
            (row.agent_id.as_str(), row.user_id.as_str()),
            ("bot", "ann")
        );
        assert_eq!(row.policy.expect("a policy").max_message_count, Some(7));
    }
    assert_eq!(imports.count_conversations().await, 1);
}

#[tokio::test]
async fn many_small_conversations_of_one_file_are_stored_once_each() {
    let conversations = gate_or_nightly(200, 1_000);
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let line = |n: usize| serde_json::json!({"messages": [{"role": "user", "content": format!("Hello {n}?")}]});
    imports
        .folder
        .file("chats.jsonl", &json_lines((0..conversations).map(line)));
    for (stored, there) in [(conversations, 0), (0, conversations)] {
        let ran = imports.import(&["chats.jsonl"]).await;
        let summary = format!(
            "{conversations} conversations, {stored} messages stored, {there} there already"
        );
        assert!(
            ran.code == Some(0) && ran.out.contains(&summary),
            "{:?}",
            ran.out.lines().last()
        );
        let mut ids: Vec<&str> = ran
            .out
            .lines()
            .filter_map(|line| Some(line.split_once("  ")?.0))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), conversations);
    }
}

#[tokio::test]
async fn two_equal_conversations_of_one_file_are_both_stored() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let line = serde_json::json!({"messages": [{"role": "user", "content": "Hello?"}]});
    imports
        .folder
        .file("chats.jsonl", &format!("{line}\n{line}\n"));
    for _ in 0..2 {
        let conversations = imports.import_ok(&["chats.jsonl"]).await;
        assert_eq!(conversations.len(), 2);
        assert_eq!(conversations[0].as_new_messages().await, [user("Hello?")]);
    }
    assert_eq!(imports.count_conversations().await, 2);
}
