//! Every value in a valid body of every call of the doors of other protocols is replaced by hostile
//! ones, left out, or gets an unknown neighbor. Each request is answered, or refused in the shape of
//! the door for what was replaced. These requests are not part of the catalogue.

use std::fmt::Write as _;

use anneal_testkit::{HttpResponse, MODEL, ScriptedModel, TestApp};
use serde_json::{Value, json};

use crate::hostile::{
    case,
    catalogue::assert_no_harm,
    door_case::{MAX_REFUSAL_BYTES, shape_differs},
    every_field::sampled,
};

/// Valid bodies with as many fields as they can have at once. The text `CONVERSATION` stands for the
/// id of a conversation, `RESPONSE` for that of a response, and `NEW` for one that each request
/// chooses for itself.
fn bodies() -> Vec<(&'static str, Value)> {
    let items = json!([
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "b", "annotations": []},
        ], "status": "completed", "phase": "commentary"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "x"},
        ], "is_error": true},
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": [
            {"type": "summary_text", "text": "s"},
        ]},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"},
            {"type": "input_file", "file_url": "https://a.example/b.pdf", "filename": "b.pdf"},
        ]},
    ]);
    let texts = json!([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]);
    let tool = json!({"type": "function", "name": "f", "description": "d",
        "parameters": {"type": "object"}, "strict": false});
    let response = json!({
        "model": MODEL, "input": texts, "instructions": "i", "store": true, "background": false,
        "stream": false, "stream_options": {"include_obfuscation": false}, "tools": [tool],
        "tool_choice": "auto", "parallel_tool_calls": true,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"},
            "description": "d", "strict": false}},
        "reasoning": {"effort": "low"}, "max_output_tokens": 100, "temperature": 0.5, "top_p": 0.5,
        "truncation": "auto", "metadata": {"k": "v"}, "user": "u", "safety_identifier": "s",
        "prompt_cache_key": "p", "max_tool_calls": 3, "service_tier": "auto", "top_logprobs": 0,
        "presence_penalty": 0, "frequency_penalty": 0, "include": ["reasoning.encrypted_content"],
    });
    let continued = json!({"input": texts, "previous_response_id": "RESPONSE",
    "context_management": [{"type": "compaction", "compact_threshold": 10_000}],
    "tools": [tool], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "function", "name": "f"},
    ]}});
    let unstored = json!({"store": false, "input": items});
    let within = json!({"input": "a", "conversation": {"id": "CONVERSATION"}});
    let message = json!({"role": "user", "content": [{"type": "text", "text": "a"}]});
    let completion = json!({
        "model": MODEL, "store": true, "user": "u", "metadata": {"k": "v"}, "stop": ["x"],
        "messages": [{"role": "system", "content": "s"}, message, {"role": "assistant",
            "content": "b", "tool_calls": [{"id": "c", "type": "function",
                "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "temperature": 0.5, "top_p": 0.5, "max_tokens": 100, "reasoning_effort": "low",
        "stream": true, "stream_options": {"include_usage": true}, "parallel_tool_calls": true,
    });
    let chat = json!({"id": "NEW", "trigger": "submit-message", "userId": "u", "model": MODEL,
        "messages": [
            {"id": "u1", "role": "user", "metadata": {"k": 1}, "parts": [
                {"type": "text", "text": "a"},
            ]},
            {"id": "a1", "role": "assistant", "parts": [
                {"type": "step-start"}, {"type": "reasoning", "text": "r"},
                {"type": "tool-look", "toolCallId": "c", "state": "output-available",
                    "input": {"at": 1}, "output": {"seen": 2}},
            ]},
            {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "b"}]},
        ],
        "tools": [{"name": "f", "inputSchema": {}}], "temperature": 0.5, "maxOutputTokens": 100,
        "metadata": {"k": "v"}, "stop": ["x"], "responseFormat": {"jsonObject": true}});
    let made = json!({"items": items, "metadata": {"k": "v"}});
    vec![
        ("/v1/conversations", made.clone()),
        (
            "/v1/conversations/CONVERSATION",
            json!({"metadata": {"k": "v"}}),
        ),
        (
            "/v1/conversations/CONVERSATION/items",
            json!({"items": items}),
        ),
        ("/v1/responses", response.clone()),
        ("/v1/responses", continued),
        ("/v1/responses", unstored),
        ("/v1/responses", within),
        ("/v1/responses/input_tokens", response),
        (
            "/v1/responses/compact",
            json!({"model": MODEL, "input": items, "instructions": "i",
            "previous_response_id": "RESPONSE", "prompt_cache_key": "p"}),
        ),
        ("/v1/chat/completions", completion),
        ("/api/agents/a/ui", chat),
    ]
}

/// The values that replace another one.
fn hostile_values() -> Vec<Value> {
    let deep = (0..60).fold(json!(1), |inside, _| json!([inside]));
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!("\0"),
        json!("a\0b"),
        json!(" \t\r\n\u{85}\u{3000}"),
        json!("\u{202e}txet\u{2066}\u{fffe}\u{10ffff}"),
        json!("'; drop table ai_message; --"),
        json!("x".repeat(100_000)),
        json!("$ref"),
        json!([]),
        json!([[]]),
        json!([null]),
        json!({}),
        json!({"\0": "\0"}),
        json!({"type": "function", "type\0": {}}),
        deep,
    ]
}

/// The JSON pointer of every value within this one.
fn pointers(value: &Value) -> Vec<String> {
    let within = |name: String, value: &Value| {
        let mut all = vec![format!("/{name}")];
        all.extend(
            pointers(value)
                .into_iter()
                .map(|rest| format!("/{name}{rest}")),
        );
        all
    };
    match value {
        Value::Array(entries) => {
            let entries = entries.iter().enumerate();
            entries
                .flat_map(|(index, entry)| within(index.to_string(), entry))
                .collect()
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .flat_map(|(name, field)| within(name.clone(), field))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The path of a pointer as refusals have it: `input[0].content`.
fn path_of(pointer: &str) -> String {
    let mut path = String::new();
    for segment in pointer.split('/').skip(1) {
        match segment.parse::<usize>() {
            Ok(index) => drop(write!(path, "[{index}]")),
            Err(_) if path.is_empty() => path.push_str(segment),
            Err(_) => drop(write!(path, ".{segment}")),
        }
    }
    path
}

/// The bodies that differ from a valid one at this place.
fn changed(body: &Value, pointer: &str) -> Vec<Value> {
    let mut all: Vec<Value> = hostile_values()
        .into_iter()
        .map(|value| {
            let mut changed = body.clone();
            *changed.pointer_mut(pointer).expect("there is a value") = value;
            changed
        })
        .collect();
    let (outer, name) = pointer.rsplit_once('/').expect("a pointer");
    let mut with_neighbor = body.clone();
    if let Some(Value::Object(fields)) = with_neighbor.pointer_mut(outer) {
        fields.insert("zz\0unknown".to_owned(), json!({"a": [1]}));
        let mut without = body.clone();
        if let Some(Value::Object(fields)) = without.pointer_mut(outer) {
            fields.remove(name);
        }
        all.extend([with_neighbor, without]);
    }
    all
}

/// How an answer is not as it must be. None: it is.
fn find_fault(path: &str, at: &str, answer: &HttpResponse) -> Option<String> {
    let beginning: String = answer.text.chars().take(200).collect();
    let report = |what: &str| {
        Some(format!(
            "{path} {at}: {what}: {} {beginning}",
            answer.status
        ))
    };
    if answer.status >= 500 {
        return report("failed");
    }
    if answer.status < 400 {
        return None;
    }
    if path.starts_with("/api/") {
        let is_sentence = answer.header("content-type").starts_with("text/plain")
            && answer.text.len() <= MAX_REFUSAL_BYTES;
        return if is_sentence {
            None
        } else {
            report("no sentence")
        };
    }
    if shape_differs(answer).is_some() {
        return report("no error object");
    }
    let error = &answer.json()["error"];
    let param = error["param"].as_str();
    let first = |path: &str| path.split(['.', '[']).next().unwrap_or_default().to_owned();
    // A parameter may contradict another one.
    let is_named =
        param.is_none_or(|param| first(param) == first(at) || CONTRADICTED.contains(&param));
    if answer.status == 400 && !is_named {
        return report("another parameter is named");
    }
    None
}

/// Parameters that are refused because of others.
const CONTRADICTED: [&str; 8] = [
    "background",
    "context_management",
    "conversation",
    "input",
    "metadata",
    "store",
    "stream_options",
    "tool_choice",
];

#[tokio::test]
async fn every_value_of_a_body_is_accepted_or_refused_by_name() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_scripted_model_and_media(&model).await;
    let web = app.http_client();
    let make = async |path: &str, body: Value| {
        let made = HttpResponse::send(web.json("POST", path, &body)).await;
        made.json()["id"].as_str().expect("an id").to_owned()
    };
    let conversation = make("/v1/conversations", json!({})).await;
    let response = make("/v1/responses", json!({"input": "a"})).await;
    let (mut asked, mut wrong, mut offset) = (0, Vec::new(), 0);
    for (path, body) in bodies() {
        let named = body
            .to_string()
            .replace("CONVERSATION", &conversation)
            .replace("RESPONSE", &response);
        let path = path.replace("CONVERSATION", &conversation);
        let send = async |body: &Value, number: usize| {
            let body = body.to_string().replace("NEW", &format!("chat-{number}"));
            let request = web.request("POST", &path);
            let request = request
                .header("content-type", "application/json")
                .body(body);
            HttpResponse::send(request).await
        };
        let body: Value = serde_json::from_str(&named).expect("is JSON");
        let valid = send(&body, asked).await;
        assert_eq!(valid.status, 200, "{path} {body}: {valid:?}");
        for pointer in pointers(&body) {
            offset += 1;
            for changed in sampled(changed(&body, &pointer), offset) {
                asked += 1;
                let answer = send(&changed, asked).await;
                let fault = find_fault(&path, &path_of(&pointer), &answer);
                wrong.extend(fault.map(|fault| {
                    let sent = changed.pointer(&pointer).map(Value::to_string);
                    let sent: String = sent.unwrap_or_default().chars().take(60).collect();
                    format!("{fault}, for {sent}")
                }));
            }
        }
    }
    println!("{asked} requests");
    assert!(wrong.is_empty(), "{} of {asked}: {wrong:#?}", wrong.len());
    assert!(asked >= 500, "{asked}");
    assert_no_harm(&app, &panics).await;
}
