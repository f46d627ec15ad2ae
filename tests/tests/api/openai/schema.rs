//! Answers, events, items and errors hold to the schema of the Open Responses specification.

use std::collections::HashMap;

use anneal_llm::provider::Api;
use anneal_testkit::{HttpClient, HttpResponse, MODEL, Say, Script, ScriptedModel, TestApp};
use jsonschema::Validator;
use serde_json::{Value, json};

use super::{create, list, post, responses, websocket::Socket};

/// The specification's OpenAPI document; `schema/README.md` says where it comes from.
const DOCUMENT: &str = include_str!("schema/openapi.json");

/// The schemas of the specification.
struct Schemas {
    response: Validator,
    item: Validator,
    /// Of the object `error`.
    error: Validator,
    compaction: Validator,
    /// Of a WebSocket's frame without a response.
    refusal: Validator,
    /// By the type of the event.
    events: HashMap<String, Validator>,
}

impl Schemas {
    fn load() -> Self {
        let document: Value = serde_json::from_str(DOCUMENT).expect("is JSON");
        let components = &document["components"];
        let validator = |name: &str| {
            let reference = format!("#/components/schemas/{name}");
            let schema = json!({"$ref": reference, "components": components});
            jsonschema::draft202012::new(&schema).expect("is a schema")
        };
        let content = &document["paths"]["/responses"]["post"]["responses"]["200"]["content"];
        let streamed = content["text/event-stream"]["schema"]["oneOf"].as_array();
        let events = streamed.expect("lists the events").iter().map(|event| {
            let reference = event["$ref"].as_str().expect("is a reference");
            let name = reference.rsplit('/').next().expect("has a name");
            let kind = &components["schemas"][name]["properties"]["type"]["enum"][0];
            let kind = kind.as_str().expect("has a type").to_owned();
            (kind, validator(name))
        });
        Self {
            events: events.collect(),
            response: validator("ResponseResource"),
            item: validator("ItemField"),
            error: validator("ErrorPayload"),
            compaction: validator("CompactResource"),
            refusal: validator("WebSocketErrorEvent"),
        }
    }

    #[track_caller]
    fn assert_response(&self, response: &Value) {
        assert_valid(&self.response, response);
    }

    /// Asserts that each event is one of the specification and holds to its schema.
    #[track_caller]
    fn assert_events(&self, events: &[Value]) {
        for event in events {
            let kind = event["type"].as_str().expect("has a type");
            let schema = self.events.get(kind);
            let schema = schema.unwrap_or_else(|| panic!("not an event of the schema: {event}"));
            assert_valid(schema, event);
        }
    }

    #[track_caller]
    fn assert_items(&self, items: &Value) {
        let items = items.as_array().expect("a list");
        assert!(!items.is_empty());
        for item in items {
            assert_valid(&self.item, item);
        }
    }

    #[track_caller]
    fn assert_error(&self, answer: &HttpResponse) {
        assert!(answer.status >= 400, "{answer:?}");
        assert_valid(&self.error, &answer.json()["error"]);
    }
}

#[track_caller]
fn assert_valid(schema: &Validator, value: &Value) {
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
}

/// A model that answers by the last word of the question, and its server.
async fn start() -> (ScriptedModel, TestApp) {
    let model = ScriptedModel::start(|request| {
        let asks = |word: &str| request.raw.contains(word);
        if asks("to fail") {
            return Script::status(400, &[], r#"{"error": {"message": "no"}}"#);
        }
        if asks("too long") {
            let message = "prompt is too long: 9000 tokens > 8192 maximum";
            let error = json!({"type": "invalid_request_error", "message": message});
            let body = json!({"type": "error", "error": error});
            return Script::status(400, &[], &body.to_string());
        }
        if asks("to break off") {
            return Script::says(request, [Say::text("Once ")]).cut_after(2);
        }
        let says = if asks("to think") {
            vec![
                Say::thought("Let me see."),
                Say::Signature("signed".to_owned()),
                Say::text("Here "),
                Say::text("it is."),
                Say::tool("call_1", "look", r#"{"at": "it"}"#),
                Say::tool("call_2", "look", "{}"),
            ]
        } else if asks("to call") {
            vec![Say::tool("call_1", "look", r#"{"at": "it"}"#)]
        } else if asks("to stop early") {
            vec![Say::text("Once upon"), Say::OutputLimit]
        } else {
            Say::texts(&["Grüße, ", "Welt."])
        };
        Script::says(request, says)
    })
    .await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    (model, app)
}

/// Runs a create plain and as a stream, stored and not, and replays the stored one. Asserts that
/// all is valid, and that the last event has this type.
async fn assert_valid_create(schemas: &Schemas, web: &HttpClient, body: &Value, end: &str) {
    for store in [true, false] {
        let mut body = body.clone();
        body["store"] = json!(store);
        let plain = post(web, responses::RESPONSES, &body).await;
        if plain.status == 200 {
            schemas.assert_response(&plain.json());
        } else {
            schemas.assert_error(&plain);
        }
        let events = responses::create_stream(web, body.clone()).await;
        schemas.assert_events(&events);
        let last = events.last().expect("has events");
        assert_eq!(last["type"], end, "{body}");
        if store {
            let id = responses::id_of(&last["response"]);
            schemas.assert_response(&responses::retrieve(web, &id).await);
            let replay = web
                .get(&format!("{}/{id}?stream=true", responses::RESPONSES))
                .await;
            schemas.assert_events(&responses::read_events(&replay));
        }
    }
}

#[tokio::test]
async fn every_response_and_every_event_holds_to_the_schema() {
    let schemas = Schemas::load();
    let (_model, app) = start().await;
    let web = app.http_client();
    let tools = json!([responses::tool("look")]);
    let creates = [
        (json!({"input": "Answer."}), "response.completed"),
        (
            json!({"input": "Begin to call.", "tools": tools}),
            "response.completed",
        ),
        (
            json!({"input": "Begin to think.", "tools": tools, "include": ["reasoning.encrypted_content"]}),
            "response.completed",
        ),
        (
            json!({"input": "Begin to stop early.", "max_output_tokens": 16}),
            "response.incomplete",
        ),
        (
            json!({
                "input": [
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": [
                        {"type": "input_text", "text": "Look."},
                        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
                    ]},
                ],
                "tools": tools,
                "tool_choice": {
                    "type": "allowed_tools", "mode": "auto",
                    "tools": [{"type": "function", "name": "look"}],
                },
                "instructions": "Be kind.", "metadata": {"case": "all"}, "truncation": "auto",
                "max_tool_calls": 3, "parallel_tool_calls": false, "user": "u",
                "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "auto",
                "temperature": 0.5,
            }),
            "response.completed",
        ),
    ];
    for (body, end) in &creates {
        assert_valid_create(&schemas, &web, body, end).await;
    }
}

#[tokio::test]
async fn responses_in_the_background_and_in_conversations_hold_to_the_schema() {
    let schemas = Schemas::load();
    let model =
        ScriptedModel::start(|request| Script::says(request, [Say::text("One")]).hanging_after(2))
            .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let queued = json!({"input": "a", "background": true, "conversation": responses::id_of(
        &post(&web, super::CONVERSATIONS, &json!({})).await.json(),
    )});
    let queued = responses::create(&web, &queued).await;
    schemas.assert_response(&queued);
    let id = responses::id_of(&queued);
    model.wait_for_calls(1).await;
    schemas.assert_response(&responses::retrieve(&web, &id).await);
    let path = format!("{}/{id}", responses::RESPONSES);
    let cancelled = web.request("POST", &format!("{path}/cancel"));
    schemas.assert_response(&HttpResponse::send(cancelled).await.json());
    let events = responses::read_events(&web.get(&format!("{path}?stream=true")).await);
    schemas.assert_events(&events);
}

#[tokio::test]
async fn failed_responses_hold_to_the_schema() {
    let schemas = Schemas::load();
    for input in ["Begin to fail.", "Begin to break off.", "Be too long."] {
        // A server of its own: models that fail often are not called for some time.
        let (_model, app) = start().await;
        let body = json!({"input": input});
        assert_valid_create(&schemas, &app.http_client(), &body, "response.failed").await;
    }
}

#[tokio::test]
async fn events_over_a_websocket_hold_to_the_schema() {
    let schemas = Schemas::load();
    let (_model, app) = start().await;
    let mut socket = Socket::open(&app).await;
    for store in [true, false] {
        for input in ["Begin to think.", "Begin to stop early.", "Begin to fail."] {
            let body = json!({"store": store, "input": input, "tools": [responses::tool("look")]});
            schemas.assert_events(&socket.create(body).await);
        }
    }
    for refused in [
        json!({"input": 3}),
        json!({"input": "a", "previous_response_id": "resp_x"}),
    ] {
        let frames = socket.create(refused).await;
        let [refusal] = &*frames else {
            panic!("more than an error: {frames:?}");
        };
        assert_valid(&schemas.refusal, refusal);
    }
}

#[tokio::test]
async fn compactions_hold_to_the_schema() {
    let schemas = Schemas::load();
    let model = ScriptedModel::start(Script::summarizes).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let input = json!([
        {"role": "user", "content": "Tell me what you know."},
        {"role": "assistant", "content": "The build took eleven seconds. ".repeat(120)},
        {"role": "user", "content": "Thank you."},
    ]);
    let body = json!({"model": MODEL, "input": input});
    let compacted = post(&web, "/v1/responses/compact", &body).await.json();
    assert_valid(&schemas.compaction, &compacted);
    let mut input = compacted["output"].as_array().expect("a list").clone();
    input.push(json!({"role": "user", "content": "Go on."}));
    let response = responses::create(&web, &json!({"input": input})).await;
    schemas.assert_response(&response);
    let inputs = format!(
        "{}/{}/input_items",
        responses::RESPONSES,
        responses::id_of(&response)
    );
    schemas.assert_items(&web.get(&inputs).await.json()["data"]);
}

#[tokio::test]
async fn items_hold_to_the_schema() {
    let schemas = Schemas::load();
    let (_model, app) = start().await;
    let web = app.http_client();
    let items = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
            {"type": "input_file", "file_url": "https://example.org/a.pdf", "filename": "a.pdf"},
        ]},
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        {"role": "assistant", "content": "I look.", "phase": "commentary"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "Nothing."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]);
    let path = create(&web, &items).await;
    schemas.assert_items(&list(&web, &path, "?order=asc").await["data"]);
    let body = json!({"input": "Begin to think.", "tools": [responses::tool("look")]});
    let response = responses::create(&web, &body).await;
    let inputs = format!(
        "{}/{}/input_items",
        responses::RESPONSES,
        responses::id_of(&response)
    );
    schemas.assert_items(&web.get(&inputs).await.json()["data"]);
}

#[tokio::test]
async fn errors_hold_to_the_schema() {
    let schemas = Schemas::load();
    let (_model, app) = start().await;
    let web = app.http_client();
    let bodies = [
        json!([]),
        json!({}),
        json!({"input": 3}),
        json!({"input": "a", "model": "unknown"}),
        json!({"input": "a", "tools": [{"type": "web_search"}]}),
        json!({"input": "a", "prompt": {"id": "p"}}),
        json!({"input": "a", "previous_response_id": "resp_unknown"}),
    ];
    for body in &bodies {
        schemas.assert_error(&post(&web, responses::RESPONSES, body).await);
    }
    let missing = [
        "responses/resp_unknown",
        "conversations/conv_unknown",
        "models/unknown",
        "unknown",
    ];
    for path in missing {
        schemas.assert_error(&web.get(&format!("/v1/{path}")).await);
    }
}

#[test]
fn a_response_without_a_key_and_an_event_with_a_wrong_value_are_noticed() {
    let schemas = Schemas::load();
    assert_eq!(schemas.events.len(), 24);
    assert!(
        !schemas
            .response
            .is_valid(&json!({"id": "resp_1", "object": "response"}))
    );
    let delta = json!({
        "type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_1",
        "output_index": 0, "content_index": 0, "delta": "a", "logprobs": [],
    });
    let schema = &schemas.events["response.output_text.delta"];
    assert!(schema.is_valid(&delta));
    for (key, wrong) in [("delta", json!(null)), ("sequence_number", json!("4"))] {
        let mut event = delta.clone();
        event[key] = wrong;
        assert!(!schema.is_valid(&event), "{event}");
    }
}
