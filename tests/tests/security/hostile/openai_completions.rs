//! Cases of chat completions and models of OpenAI's protocol.

use anneal_testkit::MODEL;
use serde_json::{Value, json};

use crate::hostile::door_case::{
    DoorCase, Expected, broken_bodies, missing, post, refused, request,
};

const COMPLETIONS: &str = "/v1/chat/completions";

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

fn ask(messages: &Value) -> Value {
    json!({"model": MODEL, "messages": messages})
}

/// Messages and parameters.
pub(crate) fn completions() -> Vec<DoorCase> {
    let valid = ask(&json!([user(&json!("a"))]));
    let mut cases = broken_bodies(COMPLETIONS, &valid);
    for (name, messages, param, code) in messages() {
        cases.push(post(
            name,
            COMPLETIONS,
            &ask(&messages),
            refused(param, code),
        ));
    }
    for (name, more, param, code) in parameters() {
        // As they are, and in a new conversation, which is deleted again.
        for store in [false, true] {
            let mut body = valid.clone();
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            if body.get("store").is_none() {
                body["store"] = json!(store);
            }
            cases.push(post(name, COMPLETIONS, &body, refused(param, code)));
        }
    }
    for store in [false, true] {
        let unknown =
            json!({"model": "no-such-model", "store": store, "messages": [user(&json!("a"))]});
        let no_model = Expected::Error(404, "model".into(), "model_not_found");
        cases.push(post("an unknown model", COMPLETIONS, &unknown, no_model));
    }
    cases.extend(headers(&valid));
    cases
}

/// Messages that are refused.
fn messages() -> Vec<Parameter> {
    let call = |call: Value| json!([user(&json!("a")), {"role": "assistant", "tool_calls": [call]}, user(&json!("b"))]);
    let part = |part: Value| json!([user(&json!([part]))]);
    vec![
        (
            "no messages",
            Value::Null,
            "messages",
            "missing_required_parameter",
        ),
        (
            "a text for messages",
            json!("a"),
            "messages",
            "invalid_type",
        ),
        ("an empty list", json!([]), "messages", "empty_array"),
        (
            "a text for a message",
            json!(["a"]),
            "messages[0]",
            "invalid_type",
        ),
        (
            "a message without a role",
            json!([{"content": "a"}]),
            "messages[0].role",
            "missing_required_parameter",
        ),
        (
            "an unknown role",
            json!([{"role": "root", "content": "a"}]),
            "messages[0].role",
            "invalid_value",
        ),
        (
            "a number for a role",
            json!([{"role": 1, "content": "a"}]),
            "messages[0].role",
            "invalid_type",
        ),
        (
            "a number for content",
            json!([user(&json!(1))]),
            "messages[0].content",
            "invalid_type",
        ),
        (
            "no content",
            json!([user(&Value::Null)]),
            "messages[0].content",
            "missing_required_parameter",
        ),
        (
            "a number for a part",
            part(json!(1)),
            "messages[0].content[0]",
            "invalid_type",
        ),
        (
            "an unknown part",
            part(json!({"type": "smell"})),
            "messages[0].content[0].type",
            "invalid_value",
        ),
        (
            "sound",
            part(json!({"type": "input_audio"})),
            "messages[0].content[0].type",
            "unsupported_parameter",
        ),
        (
            "a picture on a disk",
            part(json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}})),
            "messages[0]",
            "invalid_value",
        ),
        (
            "an unknown field",
            json!([{"role": "user", "content": "a", "x": 1}]),
            "messages[0].x",
            "unknown_parameter",
        ),
        (
            "a call without an id",
            call(json!({"function": {"name": "f", "arguments": ""}})),
            "messages[1].tool_calls[0].id",
            "missing_required_parameter",
        ),
        (
            "a call of no function",
            call(json!({"id": "c"})),
            "messages[1].tool_calls[0].function",
            "missing_required_parameter",
        ),
        (
            "a custom call",
            call(json!({"id": "c", "type": "custom"})),
            "messages[1].tool_calls[0].type",
            "unsupported_tool",
        ),
        (
            "a list for arguments",
            call(json!({"id": "c", "function": {"name": "f", "arguments": []}})),
            "messages[1].tool_calls[0].function.arguments",
            "invalid_type",
        ),
        (
            "an answer at the end",
            json!([user(&json!("a")), {"role": "assistant", "content": "b"}]),
            "messages[1].role",
            "invalid_value",
        ),
    ]
}

/// A parameter that is refused: a description, the parameters, the one at fault, the code.
type Parameter = (&'static str, Value, &'static str, &'static str);

/// Parameters that are refused.
fn parameters() -> Vec<Parameter> {
    [options(), tools()].concat()
}

fn options() -> Vec<Parameter> {
    vec![
        (
            "a number for a model",
            json!({"model": 1}),
            "model",
            "invalid_type",
        ),
        (
            "a text for store",
            json!({"store": "yes"}),
            "store",
            "invalid_type",
        ),
        (
            "a text for stream",
            json!({"stream": "yes"}),
            "stream",
            "invalid_type",
        ),
        (
            "options of no stream",
            json!({"stream_options": {}}),
            "stream_options",
            "invalid_value",
        ),
        (
            "an unknown option",
            json!({"stream": true, "stream_options": {"x": 1}}),
            "stream_options.x",
            "unknown_parameter",
        ),
        (
            "a warm temperature",
            json!({"temperature": "warm"}),
            "temperature",
            "invalid_type",
        ),
        (
            "a temperature of 1e300",
            json!({"temperature": 1e300}),
            "temperature",
            "invalid_value",
        ),
        (
            "a share below 0",
            json!({"top_p": -1}),
            "top_p",
            "invalid_value",
        ),
        (
            "no output",
            json!({"max_tokens": 0}),
            "max_tokens",
            "integer_below_min_value",
        ),
        (
            "half a token",
            json!({"max_completion_tokens": 0.5}),
            "max_completion_tokens",
            "invalid_type",
        ),
        (
            "two limits",
            json!({"max_completion_tokens": 20, "max_tokens": 30}),
            "max_tokens",
            "invalid_value",
        ),
        ("two choices", json!({"n": 2}), "n", "unsupported_parameter"),
        (
            "an unknown format",
            json!({"response_format": {"type": "xml"}}),
            "response_format.type",
            "invalid_value",
        ),
        (
            "an unknown effort",
            json!({"reasoning_effort": "vast"}),
            "reasoning_effort",
            "invalid_value",
        ),
        (
            "a number to stop at",
            json!({"stop": 1}),
            "stop",
            "invalid_type",
        ),
        (
            "a text for metadata",
            json!({"metadata": "a"}),
            "metadata",
            "invalid_type",
        ),
        (
            "a number for a user",
            json!({"user": 1}),
            "user",
            "invalid_type",
        ),
    ]
}

fn tools() -> Vec<Parameter> {
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    vec![
        (
            "a text for tools",
            json!({"tools": "f"}),
            "tools",
            "invalid_type",
        ),
        (
            "300 tools",
            json!({"tools": vec![json!({"type": "function", "function": {"name": "f"}}); 300]}),
            "tools",
            "array_above_max_length",
        ),
        (
            "a hosted tool",
            json!({"tools": [{"type": "web_search"}]}),
            "tools[0].type",
            "unsupported_tool",
        ),
        (
            "a tool without a name",
            tool(json!({})),
            "tools[0].function.name",
            "missing_required_parameter",
        ),
        (
            "a list for a schema",
            tool(json!({"name": "f", "parameters": []})),
            "tools[0].function.parameters",
            "invalid_type",
        ),
        (
            "an unknown choice",
            json!({"tool_choice": "maybe"}),
            "tool_choice",
            "invalid_value",
        ),
    ]
}

/// Headers that name no conversation, and odd keys.
fn headers(valid: &Value) -> Vec<DoorCase> {
    let with = |name: &str, header: &'static str, value: &[u8], expected| {
        let case = post(name, COMPLETIONS, valid, expected);
        DoorCase {
            headers: [case.headers, vec![(header, value.to_vec())]].concat(),
            ..case
        }
    };
    let header = "anneal-conversation";
    let mut unstored = valid.clone();
    unstored["store"] = json!(false);
    let stored_nowhere = post(
        "a contradiction",
        COMPLETIONS,
        &unstored,
        refused("store", "invalid_value"),
    );
    let missing_one = format!("conv_{}", "0".repeat(32));
    vec![
        with(
            "no such conversation",
            header,
            missing_one.as_bytes(),
            missing(),
        ),
        with("a malformed conversation", header, b"conv_1", missing()),
        with(
            "a conversation that is not UTF-8",
            header,
            b"\xff\xfe",
            missing(),
        ),
        with(
            "a long conversation",
            header,
            "x".repeat(8_000).as_bytes(),
            missing(),
        ),
        with(
            "a key that is not ASCII",
            "idempotency-key",
            b"\xff",
            refused("Idempotency-Key", "invalid_value"),
        ),
        with(
            "a key of 129 bytes",
            "idempotency-key",
            &[b'k'; 129],
            refused("Idempotency-Key", "string_above_max_length"),
        ),
        DoorCase {
            headers: [
                stored_nowhere.headers,
                vec![(header, missing_one.into_bytes())],
            ]
            .concat(),
            ..stored_nowhere
        },
    ]
}

/// Names of models.
pub(crate) fn models() -> Vec<DoorCase> {
    let no_model = || Expected::Error(404, "model".into(), "model_not_found");
    let mut cases: Vec<DoorCase> = ["x", "%00", "a/b", "..%2f..%2fetc", &"x".repeat(8_000)]
        .iter()
        .map(|name| request("no model", "GET", &format!("/v1/models/{name}"), no_model()))
        .collect();
    let unknown = refused("page", "invalid_value");
    cases.push(request(
        "an unknown parameter",
        "GET",
        "/v1/models?page=1",
        unknown,
    ));
    let no_method = Expected::Error(405, String::new(), "");
    cases.push(request(
        "no such method",
        "DELETE",
        &format!("/v1/models/{MODEL}"),
        no_method,
    ));
    cases
}
