//! `anneal chat` without a terminal: it reads lines from a pipe and writes answers to a pipe.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{AnnealBinary, CommandOutput, Folder, Script, ScriptedModel, TestApp, pb};
use serde_json::json;

use crate::commands::BINARY;

async fn run_chat(app: &TestApp, options: &[&str], input: &str) -> CommandOutput {
    let folder = Folder::new();
    let address = format!("http://{}", app.addresses.grpc);
    let arguments = [&["chat", "--address", &address, "--user", "piper"], options].concat();
    AnnealBinary::new(BINARY, &folder, "")
        .run_with_input(&arguments, input)
        .await
}

#[tokio::test]
async fn row_C5_a_piped_line_is_answered_and_standard_output_has_the_answer_only() {
    let model = ScriptedModel::saying("Hello, piper.\u{1b}[2J").await;
    let app = TestApp::with_scripted_model(&model).await;
    let ran = run_chat(&app, &[], "hello\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Hello, piper.\u{fffd}[2J\n"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains(" tokens in the conversation") && !ran.err.contains('\u{1b}'),
        "{ran:?}"
    );
    let continued = run_chat(&app, &[], "and\\\nagain").await;
    assert_eq!(continued.code, Some(0), "{continued:?}");
    let texts = model.requests()[1].texts();
    assert!(
        texts.contains(&"hello".to_owned()) && texts.contains(&"and\nagain".to_owned()),
        "{texts:?}"
    );
}

#[tokio::test]
async fn row_C5_commands_can_be_piped() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let lines = "/new one\nfirst\n\n/new two\nsecond\n/switch ONE\n/context\n/show 1\n/list\n/quit\nnever said\n";
    let ran = run_chat(&app, &[], lines).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "Yes.\nYes.\n",
        "context: ",
        "first\n",
        "next: a checkpoint at",
    ] {
        assert!(ran.out.contains(words), "{words}: {ran:?}");
    }
    let rows: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.contains(" msgs "))
        .collect();
    assert!(
        rows.len() == 2 && rows[0].contains("two") && rows[1].starts_with("* "),
        "{ran:?}"
    );
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn the_first_failure_ends_a_chat_that_reads_a_pipe() {
    let app = TestApp::start().await;
    let ran = run_chat(&app, &["--agent", "pipes"], "hello\n/list\n").await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(
        ran.err.contains("MODEL_NOT_CONFIGURED") && ran.err.contains("[chat]"),
        "{ran:?}"
    );
    let ran = run_chat(&app, &[], "/switch nowhere\n").await;
    assert!(
        ran.code == Some(1) && ran.err.contains("begins with \"nowhere\""),
        "{ran:?}"
    );
    let ask = pb::ListConversationsRequest::default();
    let listed = app
        .conversations()
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner();
    let message_counts: Vec<i64> = listed
        .conversations
        .iter()
        .map(|conversation| conversation.message_count)
        .collect();
    assert_eq!(
        message_counts,
        [0],
        "the first chat stored no message, and the second created no conversation"
    );
}

#[tokio::test]
async fn another_model_answers_and_the_one_that_did_not_is_named() {
    let a = ScriptedModel::start(|_| Script::status(500, &[], "{}")).await;
    let b = ScriptedModel::saying("From b.").await;
    let providers = json!({
        "one": {"api": "openai", "url": a.url()},
        "two": {"api": "openai", "url": b.url()},
    });
    let models = json!({
        "a": {"provider": "one", "window_tokens": 8_192},
        "b": {"provider": "two", "window_tokens": 8_192},
    });
    let settings = (
        serde_json::from_value(providers).expect("settings"),
        serde_json::from_value(models).expect("settings"),
    );
    let app = TestApp::with_models(settings, "b").await;
    let options = ["--model", "a", "--fallback-model", "b"];
    let ran = run_chat(&app, &options, "hello\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "From b.\n"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("a did not answer (MODEL_UNAVAILABLE)"),
        "{ran:?}"
    );
    assert_eq!((a.requests().len(), b.requests().len()), (1, 1));
}
