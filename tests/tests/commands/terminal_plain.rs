//! `anneal chat` without a terminal: lines from a pipe, answers into one.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use anneal_tests::{Anneal, Folder, House, Ran, ScriptedModel, pb};

use crate::BINARY;

async fn chat(house: &House, more: &[&str], input: &str) -> Ran {
    let folder = Folder::new();
    let address = format!("http://{}", house.addresses.grpc);
    let arguments = [&["chat", "--address", &address, "--user", "piper"], more].concat();
    Anneal::new(BINARY, &folder, "").fed(&arguments, input).await
}

#[tokio::test]
async fn row_C5_a_piped_line_is_answered_and_nothing_else_is_on_standard_output() {
    let model = ScriptedModel::saying("Hello, piper.\u{1b}[2J").await;
    let house = House::chatting(&model).await;
    let ran = chat(&house, &[], "hello\n").await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "Hello, piper.\u{fffd}[2J\n"), "{ran:?}");
    assert!(ran.err.contains(" tokens in the conversation") && !ran.err.contains('\u{1b}'), "{ran:?}");
    let went_on = chat(&house, &[], "and\\\nagain").await;
    assert_eq!(went_on.code, Some(0), "{went_on:?}");
    let texts = model.asked()[1].texts();
    assert!(texts.contains(&"hello".to_owned()) && texts.contains(&"and\nagain".to_owned()), "{texts:?}");
}

#[tokio::test]
async fn row_C5_commands_work_in_a_pipe() {
    let model = ScriptedModel::saying("Yes.").await;
    let house = House::chatting(&model).await;
    let lines = "/new one\nfirst\n\n/new two\nsecond\n/switch ONE\n/context\n/show 1\n/list\n/quit\nnever said\n";
    let ran = chat(&house, &[], lines).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in ["Yes.\nYes.\n", "context: ", "first\n", "next: a checkpoint at"] {
        assert!(ran.out.contains(words), "{words}: {ran:?}");
    }
    let rows: Vec<&str> = ran.out.lines().filter(|line| line.contains(" msgs ")).collect();
    assert!(rows.len() == 2 && rows[0].contains("two") && rows[1].starts_with("* "), "{ran:?}");
    assert_eq!(model.asked().len(), 2);
}

#[tokio::test]
async fn the_first_failure_ends_a_pipe() {
    let house = House::start().await;
    let ran = chat(&house, &["--agent", "pipes"], "hello\n/list\n").await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("MODEL_NOT_CONFIGURED") && ran.err.contains("[chat]"), "{ran:?}");
    let ran = chat(&house, &[], "/switch nowhere\n").await;
    assert!(ran.code == Some(1) && ran.err.contains("begins with \"nowhere\""), "{ran:?}");
    let ask = pb::ListConversationsRequest::default();
    let left = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
    let left: Vec<i64> = left.conversations.iter().map(|conversation| conversation.message_count).collect();
    assert_eq!(left, [0], "nothing is stored; the empty conversation takes the next words");
}
