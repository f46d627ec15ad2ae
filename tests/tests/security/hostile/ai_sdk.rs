//! Cases of the door of the AI SDK. A refusal is a sentence that names what is at fault.

use serde_json::{Value, json};

use crate::hostile::{
    door_case::{DoorCase, Expected, post, post_bytes, request},
    http::JSON,
};

const UI: &str = "/api/agents/a/ui";

fn sentence(words: &'static str) -> Expected {
    Expected::Sentence(400, words)
}

fn user(parts: &Value) -> Value {
    json!({"id": "u", "role": "user", "parts": parts})
}

/// Bodies, ids, messages and options of turns, and paths.
pub(crate) fn turns() -> Vec<DoorCase> {
    let text = json!({"type": "text", "text": "a"});
    let valid = json!({"id": "refused", "messages": [user(&json!([text]))]});
    let with = |more: Value| {
        let mut body = valid.clone();
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let case = |name: &str, more: Value, words| post(name, UI, &with(more), sentence(words));
    let long = "x".repeat(129);
    let mut cases = bodies(&valid);
    cases.extend([
        case("no chat", json!({"id": ""}), "id"),
        case("a number for a chat", json!({"id": 1}), "id"),
        case("NUL in a chat", json!({"id": "a\0"}), "id"),
        case("a chat of 129 bytes", json!({"id": long}), "id"),
        case("an unknown field", json!({"webSearch": true}), "webSearch"),
        case(
            "an unknown trigger",
            json!({"trigger": "resume-stream"}),
            "trigger",
        ),
        case("a number for a trigger", json!({"trigger": 1}), "trigger"),
        case("an empty message id", json!({"messageId": ""}), "messageId"),
        case(
            "a message id of 129 bytes",
            json!({"messageId": long}),
            "messageId",
        ),
        case("an end user with NUL", json!({"userId": "\0"}), "userId"),
        case("a text for messages", json!({"messages": "a"}), "messages"),
        case("no messages", json!({"messages": []}), "messages"),
        case(
            "messages and a message",
            json!({"message": user(&json!([text]))}),
            "message",
        ),
        case(
            "20,000 messages",
            json!({"messages": vec![json!({}); 20_000]}),
            "messages",
        ),
        case("a number for a model", json!({"model": 1}), "model"),
        post(
            "an unknown model",
            UI,
            &with(json!({"model": "no-such-model"})),
            Expected::Sentence(422, "no-such-model"),
        ),
        case(
            "half a token",
            json!({"maxOutputTokens": 0.5}),
            "maxOutputTokens",
        ),
        case(
            "a warm temperature",
            json!({"temperature": "warm"}),
            "temperature",
        ),
        case("a share below 0", json!({"topP": -1}), "topP"),
        case(
            "300 tools",
            json!({"tools": vec![json!({"name": "f"}); 300]}),
            "tools",
        ),
        case(
            "300 models",
            json!({"fallbackModels": vec!["m"; 300]}),
            "fallbackModels",
        ),
        case(
            "an unknown effort",
            json!({"reasoningEffort": "vast"}),
            "reasoningEffort",
        ),
    ]);
    for (name, message, words) in messages(&text) {
        cases.push(case(name, json!({"messages": [message]}), words));
    }
    cases.extend(paths(&valid));
    cases
}

/// Messages that are refused.
fn messages(text: &Value) -> Vec<(&'static str, Value, &'static str)> {
    let part = |part: Value| user(&json!([part]));
    vec![
        ("a text for a message", json!("a"), "messages[0]"),
        (
            "an unknown role",
            json!({"id": "u", "role": "root", "parts": [text]}),
            "messages[0].role",
        ),
        ("no parts", json!({"id": "u", "role": "user"}), "parts"),
        (
            "an empty list of parts",
            user(&json!([])),
            "messages[0].parts",
        ),
        (
            "an empty text",
            part(json!({"type": "text", "text": ""})),
            "messages[0].parts",
        ),
        (
            "a number for a part",
            part(json!(1)),
            "messages[0].parts[0]",
        ),
        ("a part without a type", part(json!({"text": "a"})), "type"),
        (
            "an unknown part",
            part(json!({"type": "smell"})),
            "messages[0].parts[0]",
        ),
        (
            "data",
            part(json!({"type": "data-weather", "data": {}})),
            "messages[0].parts[0]",
        ),
        (
            "a file on a disk",
            part(json!({"type": "file", "mediaType": "image/png", "url": "file:///etc/passwd"})),
            "messages[0].parts[0].url",
        ),
        (
            "a file in a script",
            part(json!({"type": "file", "mediaType": "image/png", "url": "javascript:a"})),
            "messages[0].parts[0].url",
        ),
        (
            "a file of no type",
            part(json!({"type": "file", "url": "https://a.example/b"})),
            "messages[0].parts[0].mediaType",
        ),
        (
            "a file of the provider",
            part(json!({"type": "file", "mediaType": "image/png", "providerReference": {}})),
            "providerReference",
        ),
        (
            "no id",
            json!({"role": "user", "parts": [text]}),
            "messages[0].id",
        ),
        (
            "an id of 129 bytes",
            json!({"id": "x".repeat(129), "role": "user", "parts": [text]}),
            "messages[0].id",
        ),
        (
            "large metadata",
            json!({"id": "u", "role": "user", "parts": [text], "metadata": "x".repeat(3_000)}),
            "messages[0].metadata",
        ),
        (
            "a system message",
            json!({"id": "s", "role": "system", "parts": [text]}),
            "messages[0]",
        ),
        (
            "10,001 parts",
            user(&json!(vec![text; 10_001])),
            "messages[0].parts",
        ),
    ]
}

fn bodies(valid: &Value) -> Vec<DoorCase> {
    let valid = valid.to_string();
    let unsupported = || Expected::Sentence(415, "Content-Type");
    let json = |name: &str, body: Vec<u8>, words| post_bytes(name, UI, JSON, body, sentence(words));
    vec![
        post_bytes("text", UI, "text/plain", valid.clone(), unsupported()),
        post_bytes("no type", UI, "", valid.clone(), unsupported()),
        post_bytes("no body", UI, JSON, "", sentence("body")),
        json("an open brace", b"{".to_vec(), "JSON"),
        json("a list", b"[]".to_vec(), "JSON object"),
        json("two bodies", format!("{valid} {{}}").into(), "body"),
        json("not UTF-8", b"{\"id\":\"\xff\"}".to_vec(), "JSON"),
        json(
            "half a surrogate pair",
            b"{\"id\":\"\\ud800\"}".to_vec(),
            "JSON",
        ),
        json(
            "100,000 levels",
            format!("{{\"messages\":{}", "[".repeat(100_000)).into(),
            "",
        ),
        json(
            "an unknown field of 1 MiB",
            format!("{{\"{}\":1}}", "x".repeat(1 << 20)).into(),
            "xxx",
        ),
        json(
            "an unknown part of 1 MiB",
            json!({"id": "refused", "messages": [user(&json!([{"type": "x".repeat(1 << 20)}]))]})
                .to_string()
                .into(),
            "messages[0].parts[0]",
        ),
        post_bytes(
            "a body above 4 MiB",
            UI,
            JSON,
            format!("{{\"id\":\"{}\"}}", "x".repeat(4 << 20)),
            Expected::Sentence(413, "body"),
        ),
    ]
}

fn paths(valid: &Value) -> Vec<DoorCase> {
    let agent = |name: &str, agent: &str| {
        post(
            name,
            &format!("/api/agents/{agent}/ui"),
            valid,
            sentence("agentId"),
        )
    };
    let stream = |name: &str, chat: &str, expected| {
        request(name, "GET", &format!("{UI}/{chat}/stream"), expected)
    };
    vec![
        agent("no agent", ""),
        agent("NUL in an agent", "a%00"),
        agent("an agent of 129 bytes", &"x".repeat(129)),
        post(
            "an agent that is not UTF-8",
            "/api/agents/%ff/ui",
            valid,
            Expected::Sentence(400, ""),
        ),
        post(
            "an unknown parameter",
            &format!("{UI}?x=1"),
            valid,
            sentence("x"),
        ),
        request(
            "no such method",
            "GET",
            UI,
            Expected::Sentence(405, "method"),
        ),
        request(
            "no such method",
            "POST",
            &format!("{UI}/c/stream"),
            Expected::Sentence(405, "method"),
        ),
        stream("an unknown chat", "nobody", Expected::Answered),
        stream("NUL for a chat", "%00", Expected::Answered),
        stream(
            "a chat of 8,000 bytes",
            &"x".repeat(8_000),
            Expected::Answered,
        ),
        stream(
            "a chat that is not UTF-8",
            "%ff",
            Expected::Sentence(400, ""),
        ),
    ]
}
