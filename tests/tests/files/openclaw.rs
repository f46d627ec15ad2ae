//! Sessions as OpenClaw leaves them: turns that ended in errors, questions asked again, ids of two halves.

use anneal_tests::{Files, House, pb, pi, pi_said};
use serde_json::{Value, json};

use crate::BINARY;

/// The id of a call, as OpenClaw has it of OpenAI's responses.
const ID: &str = "call_8aBcDeF012|fc_0123456789abcdef0123456789abcdef0123456789abcdef";

fn failed(why: &str) -> Value {
    json!({"type": "message", "message": {"role": "assistant", "content": [], "api": "openai-responses",
        "provider": "openai", "model": "gpt-5", "stopReason": "error", "errorMessage": why, "timestamp": 2}})
}

fn answered(content: &Value) -> Value {
    json!({"type": "message", "message": {"role": "assistant", "content": content, "api": "openai-responses",
        "provider": "openai", "model": "gpt-5", "usage": {"input": 900, "output": 7}, "stopReason": "stop", "timestamp": 3}})
}

fn session() -> String {
    let call = json!([{"type": "thinking", "thinking": "Hm.", "thinkingSignature": "rs_1"},
        {"type": "text", "text": "I look.", "textSignature": "msg_1"},
        {"type": "toolCall", "id": ID, "name": "exec", "arguments": {"command": "ls"}}]);
    let result = json!({"type": "message", "message": {"role": "toolResult", "toolCallId": ID, "toolName": "exec",
        "content": [{"type": "text", "text": "a.txt"}], "isError": false, "timestamp": 4}});
    let note = json!({"type": "custom", "customType": "openclaw:prompt-error", "data": {"error": "timeout"}});
    pi(
        "claw-1",
        &[
            pi_said("user", "What is here?"),
            failed("429 rate limit"),
            note,
            pi_said("user", "What is here?"),
            failed("overloaded"),
            pi_said("user", "What is here?"),
            answered(&call),
            result,
            answered(&json!([{"type": "text", "text": "One file."}])),
        ],
    )
}

/// Ids of calls, and those that results answer.
type Ids<'m> = (Vec<&'m Value>, Vec<&'m Value>);

fn ids_of_openai(messages: &[Value]) -> Ids<'_> {
    let calls = messages.iter().filter_map(|message| message.pointer("/tool_calls/0/id"));
    (calls.collect(), messages.iter().filter_map(|message| message.get("tool_call_id")).collect())
}

fn ids_of_anthropic(messages: &[Value]) -> Ids<'_> {
    let blocks = || messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let calls = blocks().filter(|block| block["type"] == "tool_use").map(|block| &block["id"]);
    (calls.collect(), blocks().filter_map(|block| block.get("tool_use_id")).collect())
}

#[tokio::test]
async fn a_session_of_openclaw_is_stored_whole_and_sent_as_a_provider_takes_it() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    files.folder.file("claw.jsonl", &session());
    let ran = files.import(&["claw.jsonl", "--profile", "openclaw"]).await;
    assert!(
        ran.code == Some(0) && ran.out.contains("8 messages stored, 0 there already\n"),
        "nothing is said of it: {ran:?}"
    );
    let talk = files.talks(&ran).pop().expect("one");
    let given = talk.given().await;
    let stops: Vec<Option<&str>> =
        given.iter().map(|message| message.metadata.get("pi.errorMessage").map(String::as_str)).collect();
    assert_eq!((stops[1], stops[3]), (Some("429 rate limit"), Some("overloaded")));
    assert!(given[2].metadata["pi.entries"].contains("openclaw:prompt-error"), "{:?}", given[2].metadata);

    for format in [pb::Format::OpenaiChat, pb::Format::AnthropicMessages] {
        let ask =
            pb::BuildContextRequest { conversation_id: talk.id.clone(), format: format.into(), ..Default::default() };
        let built = house.contexts().build_context(ask).await.expect("builds").into_inner();
        let rendered = built.rendered.expect("is rendered");
        assert_eq!(rendered.matches("What is here?").count(), 1, "{format:?}: the question is sent once: {rendered}");
        assert!(rendered.contains("One file.") && rendered.contains("a.txt"), "{rendered}");
        let sent: Value = serde_json::from_str(&rendered).expect("JSON");
        let text = sent.to_string();
        assert!(!text.contains("429 rate limit"), "{text}");
        // call and result meet under one id, and it is one that the provider takes
        let messages = sent["messages"].as_array().expect("messages");
        let (calls, results) =
            if format == pb::Format::OpenaiChat { ids_of_openai(messages) } else { ids_of_anthropic(messages) };
        assert_eq!((calls.len(), &calls), (1, &results), "{rendered}");
        let id = calls[0].as_str().expect("a text");
        let is_taken = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        assert!(format == pb::Format::OpenaiChat || id.chars().all(is_taken), "{id}");
    }

    files.folder.file("back.jsonl", &files.exported(&[&talk.id, "--format", "pi"]).await);
    let back = files.imported(&["back.jsonl", "--user", "back"]).await.pop().expect("one");
    assert_eq!(back.given().await, given, "and so it goes out");
    talk.verify().await;
}

#[tokio::test]
async fn a_session_of_openclaw_that_goes_on_is_found_again() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let whole = session();
    let lines: Vec<&str> = whole.lines().collect();
    for count in 2..=lines.len() {
        files.folder.file("claw.jsonl", &(lines[..count].join("\n") + "\n"));
        files.imported(&["claw.jsonl"]).await;
    }
    let grown = files.imported(&["claw.jsonl"]).await.pop().expect("one");
    let at_once = files.imported(&["claw.jsonl", "--user", "at once"]).await.pop().expect("one");
    let said = async |talk: &anneal_tests::Talk<'_>| {
        let given = talk.given().await.into_iter();
        given.map(|message| (message.role, message.parts)).collect::<Vec<_>>()
    };
    assert_eq!(said(&grown).await, said(&at_once).await);
}
