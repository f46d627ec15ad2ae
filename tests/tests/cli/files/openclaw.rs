//! `anneal import` of sessions as OpenClaw writes them: with answers that failed, with repeated
//! questions, and with call ids that consist of two parts.

use anneal_testkit::{ImportFolder, TestApp, pb, pi_message, pi_session};
use serde_json::{Value, json};

use crate::files::BINARY;

/// A call id as OpenClaw composes it of the two ids in OpenAI's responses.
const CALL_ID: &str = "call_8aBcDeF012|fc_0123456789abcdef0123456789abcdef0123456789abcdef";

fn failed_answer(error: &str) -> Value {
    json!({"type": "message", "message": {"role": "assistant", "content": [], "api": "openai-responses",
        "provider": "openai", "model": "gpt-5", "stopReason": "error", "errorMessage": error, "timestamp": 2}})
}

fn answer(content: &Value) -> Value {
    json!({"type": "message", "message": {"role": "assistant", "content": content, "api": "openai-responses",
        "provider": "openai", "model": "gpt-5", "usage": {"input": 900, "output": 7}, "stopReason": "stop", "timestamp": 3}})
}

/// A session whose question is asked three times, because the first two answers failed.
fn session() -> String {
    let call = json!([{"type": "thinking", "thinking": "Hm.", "thinkingSignature": "rs_1"},
        {"type": "text", "text": "I look.", "textSignature": "msg_1"},
        {"type": "toolCall", "id": CALL_ID, "name": "exec", "arguments": {"command": "ls"}}]);
    let result = json!({"type": "message", "message": {"role": "toolResult", "toolCallId": CALL_ID, "toolName": "exec",
        "content": [{"type": "text", "text": "a.txt"}], "isError": false, "timestamp": 4}});
    let note = json!({"type": "custom", "customType": "openclaw:prompt-error", "data": {"error": "timeout"}});
    pi_session(
        "claw-1",
        &[
            pi_message("user", "What is here?"),
            failed_answer("429 rate limit"),
            note,
            pi_message("user", "What is here?"),
            failed_answer("overloaded"),
            pi_message("user", "What is here?"),
            answer(&call),
            result,
            answer(&json!([{"type": "text", "text": "One file."}])),
        ],
    )
}

/// The ids of calls, and the call ids of results.
type Ids<'m> = (Vec<&'m Value>, Vec<&'m Value>);

fn openai_ids(messages: &[Value]) -> Ids<'_> {
    let calls = messages
        .iter()
        .filter_map(|message| message.pointer("/tool_calls/0/id"));
    (
        calls.collect(),
        messages
            .iter()
            .filter_map(|message| message.get("tool_call_id"))
            .collect(),
    )
}

fn anthropic_ids(messages: &[Value]) -> Ids<'_> {
    let blocks = || {
        messages
            .iter()
            .filter_map(|message| message["content"].as_array())
            .flatten()
    };
    let calls = blocks()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| &block["id"]);
    (
        calls.collect(),
        blocks()
            .filter_map(|block| block.get("tool_use_id"))
            .collect(),
    )
}

#[tokio::test]
async fn an_openclaw_session_is_stored_unchanged_and_rendered_so_that_providers_accept_it() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    imports.folder.file("claw.jsonl", &session());
    let ran = imports
        .import(&["claw.jsonl", "--profile", "openclaw"])
        .await;
    assert!(
        ran.code == Some(0) && ran.out.contains("8 messages stored, 0 there already\n"),
        "no remark follows on the line of the result: {ran:?}"
    );
    let conversation = imports.conversations(&ran).pop().expect("one conversation");
    let stored_messages = conversation.as_new_messages().await;
    let errors: Vec<Option<&str>> = stored_messages
        .iter()
        .map(|message| message.metadata.get("pi.errorMessage").map(String::as_str))
        .collect();
    assert_eq!(
        (errors[1], errors[3]),
        (Some("429 rate limit"), Some("overloaded"))
    );
    assert!(
        stored_messages[2].metadata["pi.entries"].contains("openclaw:prompt-error"),
        "{:?}",
        stored_messages[2].metadata
    );

    for format in [pb::Format::OpenaiChat, pb::Format::AnthropicMessages] {
        let ask = pb::BuildContextRequest {
            conversation_id: conversation.id.clone(),
            format: format.into(),
            ..Default::default()
        };
        let built = app
            .contexts()
            .build_context(ask)
            .await
            .expect("builds")
            .into_inner();
        let rendered = built.rendered.expect("is rendered");
        assert_eq!(
            rendered.matches("What is here?").count(),
            1,
            "{format:?}: the question is sent once: {rendered}"
        );
        assert!(
            rendered.contains("One file.") && rendered.contains("a.txt"),
            "{rendered}"
        );
        let sent: Value = serde_json::from_str(&rendered).expect("JSON");
        let text = sent.to_string();
        assert!(!text.contains("429 rate limit"), "{text}");
        // Call and result have the same id. Anthropic accepts only letters, digits, `_` and `-` in
        // it. For OpenAI the characters are not checked.
        let messages = sent["messages"].as_array().expect("messages");
        let (calls, results) = if format == pb::Format::OpenaiChat {
            openai_ids(messages)
        } else {
            anthropic_ids(messages)
        };
        assert_eq!((calls.len(), &calls), (1, &results), "{rendered}");
        let id = calls[0].as_str().expect("a text");
        let is_accepted =
            |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        assert!(
            format == pb::Format::OpenaiChat || id.chars().all(is_accepted),
            "{id}"
        );
    }

    imports.folder.file(
        "back.jsonl",
        &imports.export(&[&conversation.id, "--format", "pi"]).await,
    );
    let imported_again = imports
        .import_ok(&["back.jsonl", "--user", "back"])
        .await
        .pop()
        .expect("one conversation");
    assert_eq!(
        imported_again.as_new_messages().await,
        stored_messages,
        "the exported session has the same messages"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn an_openclaw_session_that_grows_is_found_again() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let whole = session();
    let lines: Vec<&str> = whole.lines().collect();
    for count in 2..=lines.len() {
        imports
            .folder
            .file("claw.jsonl", &(lines[..count].join("\n") + "\n"));
        imports.import_ok(&["claw.jsonl"]).await;
    }
    let grown = imports
        .import_ok(&["claw.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let at_once = imports
        .import_ok(&["claw.jsonl", "--user", "at once"])
        .await
        .pop()
        .expect("one conversation");
    let parts_by_role = async |conversation: &anneal_testkit::TestConversation<'_>| {
        let messages = conversation.as_new_messages().await.into_iter();
        messages
            .map(|message| (message.role, message.parts))
            .collect::<Vec<_>>()
    };
    assert_eq!(parts_by_role(&grown).await, parts_by_role(&at_once).await);
}
