//! `anneal import`: whatever is run again, was killed, or has grown, every message is there once.

use anneal_tests::{Anneal, Files, House, Line, claw0, eventually, lines_of, pb, pi, pi_said, user};

use crate::BINARY;

/// OpenAI messages as JSON lines, a system prompt first.
fn openai(turns: usize) -> String {
    let mut lines = vec![serde_json::json!({"role": "system", "content": "Be brief."})];
    for n in 0..turns {
        lines.push(serde_json::json!({"role": "user", "content": format!("What is the capital of country {n}?")}));
        lines.push(serde_json::json!({"role": "assistant", "content": format!("The capital is City-{n}.")}));
    }
    lines_of(lines)
}

#[tokio::test]
async fn a_second_run_adds_nothing_whatever_the_format() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("chat.jsonl", &openai(3));
    files.folder.file("session.jsonl", &claw0(3));
    files.folder.file("pi.jsonl", &pi("s1", &[pi_said("user", "Hello?"), pi_said("assistant", "Hello.")]));
    let all = ["chat.jsonl", "session.jsonl", "pi.jsonl"];
    let first = files.imported(&all).await;
    assert_eq!(first[0].conversation().await.system_prompt, "Be brief.");
    let again = files.import(&all).await;
    assert_eq!(again.out.matches(", 0 messages stored, ").count(), 3, "{again:?}");
    let ids = |talks: &[anneal_tests::Talk<'_>]| talks.iter().map(|talk| talk.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&files.talks(&again)), ids(&first));
    assert_eq!(files.count().await, 3);
    files.folder.file("renamed.jsonl", &openai(3));
    files.imported(&["renamed.jsonl"]).await;
    assert_eq!(files.count().await, 3, "a conversation without a name is known by its content");
    files.imported(&["chat.jsonl", "--agent", "other"]).await;
    assert_eq!(files.count().await, 4, "another agent's is another one");
    for talk in first {
        talk.verify().await;
    }
}

#[tokio::test]
async fn a_session_that_has_grown_adds_only_what_is_new() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let said = [pi_said("user", "One?"), pi_said("assistant", "One."), pi_said("user", "Two?")];
    for (name, short, long) in
        [("claw.jsonl", claw0(2), claw0(40)), ("pi.jsonl", pi("s1", &said[..2]), pi("s1", &said))]
    {
        files.folder.file(name, &short);
        let first = files.imported(&[name]).await.pop().expect("one");
        let before = first.given().await;
        files.folder.file(name, &long);
        let grown = files.imported(&[name]).await.pop().expect("one");
        assert_eq!(grown.id, first.id, "{name}");
        let after = grown.given().await;
        assert!(after.len() > before.len() && after.starts_with(&before), "{name}: {} messages", after.len());
        let whole = files.imported(&[name, "--user", "somebody"]).await.pop().expect("one").given().await;
        assert_eq!(after, whole, "{name}: as if it had been imported at once");
        grown.verify().await;
    }
}

#[tokio::test]
async fn a_session_that_was_rewritten_or_went_on_here_is_left_alone_with_a_sentence() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let said = |last: &str| pi("s1", &[pi_said("user", "One?"), pi_said("assistant", last)]);
    files.folder.file("pi.jsonl", &said("One."));
    let talk = files.imported(&["pi.jsonl"]).await.pop().expect("one");
    files.folder.file("pi.jsonl", &said("Uno."));
    let rewritten = files.import(&["pi.jsonl"]).await;
    assert_eq!(rewritten.code, Some(1), "{rewritten:?}");
    assert!(rewritten.out.contains("the file was rewritten"), "{rewritten:?}");
    files.folder.file("pi.jsonl", &said("One."));
    talk.append("Said here.").await;
    let same = files.import(&["pi.jsonl"]).await;
    assert_eq!(same.code, Some(0), "the file holds nothing new: {same:?}");
    let more = [pi_said("user", "One?"), pi_said("assistant", "One."), pi_said("user", "Said there.")];
    files.folder.file("pi.jsonl", &pi("s1", &more));
    let gone_on = files.import(&["pi.jsonl"]).await;
    assert!(gone_on.code == Some(1) && gone_on.out.contains("has gone on by itself"), "{gone_on:?}");
    assert_eq!(talk.messages().await.len(), 3);
}

#[tokio::test]
async fn a_conversation_that_keeps_no_tools_is_found_again_and_grows() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("claw.jsonl", &claw0(2));
    let import = ["claw.jsonl", "--profile", "zeroclaw"];
    let talk = files.imported(&import).await.pop().expect("one");
    let texts = async || talk.said().await.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let two = ["What is in file 0?", "I look.", "Line 0.", "What is in file 1?", "I look.", "Line 1."];
    assert_eq!(texts().await, two, "no calls and no results");
    for _ in 0..2 {
        files.imported(&import).await;
        assert_eq!(texts().await, two);
    }
    files.folder.file("claw.jsonl", &claw0(3));
    files.imported(&import).await;
    assert_eq!(texts().await[6..], ["What is in file 2?", "I look.", "Line 2."]);
    talk.verify().await;
}

/// Messages of the newest conversation.
async fn stored(files: &Files<'_>) -> i64 {
    let listed = files.house.conversations().list_conversations(pb::ListConversationsRequest::default()).await;
    listed.expect("lists").into_inner().conversations.first().map_or(0, |row| row.message_count)
}

/// Kills imports of the file in the middle, one after the other, then lets one come to its end.
async fn kill_and_go_on(files: &Files<'_>, name: &str, kills: usize) {
    let anneal: &Anneal = &files.anneal;
    for _ in 0..kills {
        let before = stored(files).await;
        let killed = anneal.start(&files.arguments("import", &[name]));
        eventually("more is stored", async || stored(files).await > before).await;
        killed.kill().await;
    }
    files.imported(&[name]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_killed_again_and_again_is_complete_and_has_everything_once() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("claw.jsonl", &claw0(2_000));
    kill_and_go_on(&files, "claw.jsonl", 3).await;
    let whole = files.imported(&["claw.jsonl", "--user", "at once"]).await.pop().expect("one");
    let killed = files.imported(&["claw.jsonl"]).await.pop().expect("one");
    let (killed_said, whole_said) = (killed.given().await, whole.given().await);
    assert!(killed_said == whole_said, "{} messages, {} at once", killed_said.len(), whole_said.len());
    killed.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_whose_connection_is_lost_goes_on_over_another_one() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("claw.jsonl", &claw0(2_000));
    let line = Line::to_port(house.addresses.grpc.port()).await;
    let address = format!("http://127.0.0.1:{}", line.port());
    let import = files.anneal.start(&["import", "--address", &address, "claw.jsonl"]);
    for _ in 0..3 {
        let before = stored(&files).await;
        eventually("more is stored", async || stored(&files).await > before).await;
        line.cut();
    }
    assert_eq!(import.ended().await, Some(0));
    let (talks, messages) = (files.count().await, stored(&files).await);
    files.imported(&["claw.jsonl"]).await;
    assert_eq!((files.count().await, stored(&files).await), (talks, messages), "nothing was missing");
}

#[tokio::test]
async fn branches_of_a_session_are_conversations_of_their_own_when_asked_for() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let mut left = pi_said("assistant", "Left.");
    left["parentId"] = "00000001".into();
    let mut right = pi_said("assistant", "Right.");
    right["parentId"] = "00000001".into();
    files.folder.file("pi.jsonl", &pi("s1", &[pi_said("user", "Where?"), left, right]));
    let active = files.imported(&["pi.jsonl"]).await;
    assert_eq!(active.len(), 1);
    assert_eq!(active[0].said().await[1].1, "Right.", "the branch of the last entry");
    for _ in 0..2 {
        let both = files.imported(&["pi.jsonl", "--all-branches"]).await;
        let mut answers = Vec::new();
        for talk in &both {
            answers.push(talk.said().await[1].1.clone());
        }
        answers.sort();
        assert_eq!(answers, ["Left.", "Right."]);
        assert_eq!(files.count().await, 2, "the active branch is the conversation that it was");
    }
}

#[tokio::test]
async fn pipes_and_settings_of_the_command_line_are_taken() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let rest = ["--format", "claw0", "--as", "s7", "--agent", "bot", "--user", "ann", "--max-message-count", "7"];
    for pipe in ["-", "-", "/dev/stdin"] {
        let arguments = files.arguments("import", &[&[pipe][..], &rest].concat());
        let ran = files.anneal.fed(&arguments, &claw0(1)).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let row = files.talks(&ran)[0].conversation().await;
        assert_eq!((row.agent_id.as_str(), row.user_id.as_str()), ("bot", "ann"));
        assert_eq!(row.policy.expect("one").max_message_count, Some(7));
    }
    assert_eq!(files.count().await, 1);
}

#[tokio::test]
async fn a_thousand_tiny_conversations_of_one_file_are_each_there_once() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let line = |n: usize| serde_json::json!({"messages": [{"role": "user", "content": format!("Hello {n}?")}]});
    files.folder.file("chats.jsonl", &lines_of((0..1_000).map(line)));
    for (stored, there) in [(1_000, 0), (0, 1_000)] {
        let ran = files.import(&["chats.jsonl"]).await;
        let said = format!("1000 conversations, {stored} messages stored, {there} there already");
        assert!(ran.code == Some(0) && ran.out.contains(&said), "{:?}", ran.out.lines().last());
        let mut ids: Vec<&str> = ran.out.lines().filter_map(|line| Some(line.split_once("  ")?.0)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1_000);
    }
}

#[tokio::test]
async fn two_equal_conversations_of_one_file_stay_two() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let line = serde_json::json!({"messages": [{"role": "user", "content": "Hello?"}]});
    files.folder.file("chats.jsonl", &format!("{line}\n{line}\n"));
    for _ in 0..2 {
        let talks = files.imported(&["chats.jsonl"]).await;
        assert_eq!(talks.len(), 2);
        assert_eq!(talks[0].given().await, [user("Hello?")]);
    }
    assert_eq!(files.count().await, 2);
}
