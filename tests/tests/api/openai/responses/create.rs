//! Responses are created: plain, as a stream, stored or not.

use std::collections::BTreeMap;

use anneal_testkit::{
    Canary, HttpResponse, Say, Script, ScriptedModel, TestApp, dump_database, eventually,
};
use serde_json::{Value, json};

use super::{
    RESPONSES, create, create_stream, create_with_key, id_of, list_texts, retrieve, streamed_text,
    text_of, tool,
};
use crate::openai::{assert_error, delete, post};

/// The keys that every response object has.
const KEYS: [&str; 31] = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
];

#[tokio::test]
async fn a_response_has_every_key_and_is_retrieved_as_it_was_answered() {
    let model = ScriptedModel::saying("Hello there, friend.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let response = create(
        &web,
        &json!({"input": "Say hello.", "instructions": "Be kind.", "temperature": 0.3,
                "metadata": {"a": "b"}, "user": "u"}),
    )
    .await;
    for key in KEYS {
        assert!(response.get(key).is_some(), "{key} is missing: {response}");
    }
    assert_eq!(response["status"], "completed");
    assert_eq!(text_of(&response), "Hello there, friend.");
    assert_eq!(response["temperature"], json!(0.3));
    assert_eq!(response["metadata"], json!({"a": "b"}));
    assert!(response["usage"]["total_tokens"].as_u64() > Some(0));
    assert_eq!(model.requests()[0].texts(), ["Be kind.", "Say hello."]);
    assert_eq!(retrieve(&web, &id_of(&response)).await, response);
    let items = web
        .get(&format!("{RESPONSES}/{}/input_items", id_of(&response)))
        .await
        .json();
    assert_eq!(items["data"][0]["content"][0]["text"], "Say hello.");
    assert_eq!(items["has_more"], false);
}

#[tokio::test]
async fn a_stream_ends_with_the_object_that_a_retrieval_returns() {
    let says = ["Let me ", "look."].map(Say::text);
    let says: Vec<Say> = says
        .into_iter()
        .chain([Say::tool("call_1", "look", r#"{"at":"map"}"#)])
        .collect();
    let model = ScriptedModel::start(move |request| Script::says(request, says.clone())).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let events = create_stream(&web, json!({"input": "Look!", "tools": [tool("look")]})).await;
    assert_eq!(streamed_text(&events), "Let me look.");
    let last = events.last().expect("has events");
    assert_eq!(last["type"], "response.completed");
    let done: Vec<Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["item"].clone())
        .collect();
    assert_eq!(last["response"]["output"], json!(done));
    assert_eq!(done[1]["type"], "function_call");
    assert_eq!(done[1]["arguments"], r#"{"at":"map"}"#);
    let id = id_of(&last["response"]);
    assert_eq!(retrieve(&web, &id).await, last["response"]);
}

#[tokio::test]
async fn nothing_of_a_response_that_is_not_stored_is_in_any_table() {
    const CANARY: Canary = Canary("kestrelbyte");
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&CANARY.in_text("is the answer."))])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({
        "input": CANARY.in_text("is the question."), "store": false,
        "instructions": CANARY.in_text("is the system."), "metadata": {"k": CANARY.0},
    });
    let response = create(&web, &body).await;
    assert_eq!(
        (&response["status"], &response["store"]),
        (&json!("completed"), &json!(false))
    );
    let events = create_stream(&web, body).await;
    assert_eq!(
        events.last().expect("has events")["type"],
        "response.completed"
    );
    let tables = CANARY.find_tables(&app.url).await;
    assert!(tables.is_empty(), "{tables:?}");
    let id = id_of(&response);
    let answer = web.get(&format!("{RESPONSES}/{id}")).await;
    assert_error(&answer, 404, "", "");
    let again = post(
        &web,
        RESPONSES,
        &json!({"input": "a", "previous_response_id": id}),
    )
    .await;
    assert_error(&again, 404, "", "previous_response_not_found");
}

/// The number of rows of each table, as `pg_dump` writes them.
async fn count_rows(app: &TestApp) -> BTreeMap<String, usize> {
    let mut rows = BTreeMap::new();
    for line in dump_database(&app.url).await.lines() {
        if let Some(rest) = line.strip_prefix("INSERT INTO public.") {
            let table = rest.split(' ').next().unwrap_or_default();
            *rows.entry(table.to_owned()).or_default() += 1;
        }
    }
    // The cost of a tenant's calls and the failures of a model are not about a response.
    for table in ["ai_model_spend", "ai_model_breaker", "ai_tenant_breaker"] {
        rows.remove(table);
    }
    rows
}

#[tokio::test]
async fn a_response_that_is_not_stored_leaves_no_row_however_it_ends() {
    let model = ScriptedModel::start(|request| {
        let asks = |word: &str| request.texts().last().is_some_and(|text| text == word);
        if asks("fail") {
            return Script::status(400, &[], r#"{"error": {"message": "no"}}"#);
        }
        let script = Script::says(request, [Say::text("Once "), Say::tool("c", "look", "{}")]);
        if asks("break off") {
            script.cut_after(2)
        } else {
            script
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let stored = id_of(&create(&web, &json!({"input": "a", "tools": [tool("look")]})).await);
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
    let before = count_rows(&app).await;
    assert_eq!(before["ai_response"], 1);
    let no_calls = json!({"input": "a", "tools": [tool("look")], "tool_choice": "none"});
    let bodies = [
        json!({"input": "a", "tools": [tool("look")]}),
        json!({"input": [output], "previous_response_id": stored, "tools": [tool("look")]}),
        no_calls,
        json!({"input": "fail"}),
        json!({"input": "break off"}),
    ];
    for stream in [false, true] {
        for body in &bodies {
            let mut body = body.clone();
            body["store"] = json!(false);
            body["stream"] = json!(stream);
            let answer = post(&web, RESPONSES, &body).await;
            assert!(!answer.text.is_empty(), "{answer:?}");
            // The turn settles its call after the answer was sent.
            let mut db = app.db().await;
            eventually("the turn is over", async || {
                let leases = sqlx::query_scalar::<_, i64>("select count(*) from ai_model_lease");
                leases.fetch_one(&mut db).await.expect("is answered") == 0
            })
            .await;
            assert_eq!(count_rows(&app).await, before, "{body}");
        }
    }
    assert!(model.requests().len() > 2 * bodies.len());
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name_and_stores_nothing() {
    const CANARY: Canary = Canary("quillfeather");
    let model = ScriptedModel::saying("No.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for (more, param, code) in [
        (
            json!({"prompt": {"id": "p"}}),
            "prompt",
            "unsupported_parameter",
        ),
        (
            json!({"moderation": {}}),
            "moderation",
            "unsupported_parameter",
        ),
        (
            json!({"top_logprobs": 2}),
            "top_logprobs",
            "unsupported_parameter",
        ),
        (
            json!({"presence_penalty": 1}),
            "presence_penalty",
            "unsupported_parameter",
        ),
        (
            json!({"service_tier": "flex"}),
            "service_tier",
            "unsupported_parameter",
        ),
        (
            json!({"tools": [{"type": "web_search"}]}),
            "tools[0].type",
            "unsupported_tool",
        ),
        (
            json!({"tools": [{"type": "mcp"}]}),
            "tools[0].type",
            "unsupported_tool",
        ),
        (
            json!({"tool_choice": {"type": "file_search"}}),
            "tool_choice.type",
            "unsupported_tool",
        ),
        (
            json!({"include": ["file_search_call.results"]}),
            "include[0]",
            "unsupported_parameter",
        ),
        (
            json!({"background": true, "store": false}),
            "background",
            "invalid_value",
        ),
        (
            json!({"max_output_tokens": 3}),
            "max_output_tokens",
            "integer_below_min_value",
        ),
        (json!({"temperature": "hot"}), "temperature", "invalid_type"),
        (json!({"truncation": "some"}), "truncation", "invalid_value"),
        (json!({"model": "unknown"}), "model", "model_not_found"),
    ] {
        let mut body = json!({"input": CANARY.in_text("asks")});
        for (name, value) in more.as_object().expect("is an object") {
            body[name] = value.clone();
        }
        assert_error(
            &post(&web, RESPONSES, &body).await,
            refusal_status(code),
            param,
            code,
        );
    }
    assert_error(
        &post(&web, RESPONSES, &json!({})).await,
        400,
        "input",
        "missing_required_parameter",
    );
    assert!(CANARY.find_tables(&app.url).await.is_empty());
    assert!(model.requests().is_empty());
}

fn refusal_status(code: &str) -> u16 {
    if code == "model_not_found" { 404 } else { 400 }
}

#[tokio::test]
async fn unknown_parameters_are_ignored_and_named_in_a_header() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let body = json!({"input": "a", "zeta": 1, "alpha": {}});
    let answer = post(&app.http_client(), RESPONSES, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-anneal-ignored-parameters"), "alpha, zeta");
}

#[tokio::test]
async fn a_repeated_create_with_a_key_gets_the_same_response() {
    let model = ScriptedModel::saying("Once.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let send = async |body: &Value| create_with_key(&web, "k", body).await;
    let first = send(&json!({"input": "a"})).await.json();
    assert_eq!(send(&json!({"input": "a"})).await.json(), first);
    assert_eq!(model.requests().len(), 1);
    let other = send(&json!({"input": "b"})).await;
    assert_error(&other, 409, "", "request_id_reused");
}

#[tokio::test]
async fn a_key_that_is_repeated_twice_at_once_after_a_failure_leaves_one_response() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 0 {
            Script::status(400, &[], r#"{"error": {"message": "no"}}"#)
        } else {
            Script::says(request, [Say::text("Yes.")])
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"input": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "two"},
    ]});
    let failed = create_with_key(&web, "k", &body).await;
    assert_ne!(failed.status, 200, "{failed:?}");
    let (left, right) = tokio::join!(
        create_with_key(&web, "k", &body),
        create_with_key(&web, "k", &body)
    );
    assert_eq!(
        (left.status, right.status),
        (200, 200),
        "{left:?} {right:?}"
    );
    let (left, right) = (left.json(), right.json());
    assert_eq!(left, right);
    assert_eq!(text_of(&left), "Yes.");
    assert_eq!(retrieve(&web, &id_of(&left)).await, left);
    assert_eq!(model.requests().len(), 2);
    // The conversations of the other tries are gone.
    let conversations: i64 = sqlx::query_scalar("select count(*) from ai_conversation")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts");
    assert_eq!(conversations, 1);
}

#[tokio::test]
async fn a_refused_response_leaves_nothing_of_its_input() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let conversation = id_of(&post(&web, "/v1/conversations", &json!({})).await.json());
    let input = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "two"},
    ]);
    for (key, more) in [
        ("a", json!({"conversation": conversation})),
        ("b", json!({})),
    ] {
        let mut body = more;
        body["input"] = input.clone();
        body["model"] = json!("unknown");
        let refused = create_with_key(&web, key, &body).await;
        assert_error(&refused, 404, "model", "model_not_found");
    }
    assert!(list_texts(&web, &conversation).await.is_empty());
    let rows: i64 = sqlx::query_scalar(
        "select (select count(*) from ai_response) + (select count(*) from ai_conversation)",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("counts");
    assert_eq!(rows, 1, "the conversation that the client has made");
}

#[tokio::test]
async fn an_answer_at_the_output_limit_is_incomplete() {
    let says = [Say::text("It began"), Say::OutputLimit];
    let model = ScriptedModel::start(move |request| Script::says(request, says.clone())).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let response = create(&web, &json!({"input": "Tell.", "max_output_tokens": 16})).await;
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(retrieve(&web, &id_of(&response)).await, response);
}

#[tokio::test]
async fn a_failed_model_is_an_error_or_the_last_event_of_a_stream() {
    let model = ScriptedModel::start(|_| Script::status(500, &[], "{}")).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let plain = post(&web, RESPONSES, &json!({"input": "a"})).await;
    assert!(plain.status >= 500, "{plain:?}");
    assert_eq!(plain.json()["error"]["type"], "server_error");
    let events = create_stream(&web, json!({"input": "a"})).await;
    let last = events.last().expect("has events");
    assert_eq!(last["type"], "response.failed");
    assert!(last["response"]["error"]["message"].is_string());
    assert!(events.iter().all(|event| event["type"] != "error"));
    let stored = retrieve(&web, &id_of(&last["response"])).await;
    assert_eq!(stored, last["response"]);
}

#[tokio::test]
async fn a_call_that_the_request_does_not_allow_fails_the_response() {
    let says = [Say::tool("call_1", "drop", "{}")];
    let model = ScriptedModel::start(move |request| Script::says(request, says.clone())).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let allowed = json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "look"}]});
    let body = json!({
        "input": "Look.", "tools": [tool("look"), tool("drop")], "tool_choice": allowed,
    });
    let response = create(&web, &body).await;
    assert_eq!(
        (&response["status"], &response["output"]),
        (&json!("failed"), &json!([]))
    );
}

#[tokio::test]
async fn a_deleted_response_is_gone_with_its_messages() {
    const CANARY: Canary = Canary("marblewren");
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let response = create(&web, &json!({"input": CANARY.in_text("asks")})).await;
    let path = format!("{RESPONSES}/{}", id_of(&response));
    let deleted = delete(&web, &path).await.json();
    assert_eq!(
        (&deleted["object"], &deleted["deleted"]),
        (&json!("response.deleted"), &json!(true))
    );
    assert_error(&web.get(&path).await, 404, "", "");
    assert_error(&delete(&web, &path).await, 404, "", "");
    assert!(CANARY.find_tables(&app.url).await.is_empty());
}

#[tokio::test]
async fn unknown_responses_are_not_found() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for id in [
        format!("resp_{}", "0".repeat(32)),
        "resp_x".to_owned(),
        "%20".to_owned(),
    ] {
        let path = format!("{RESPONSES}/{id}");
        assert_error(&web.get(&path).await, 404, "", "");
        assert_error(&delete(&web, &path).await, 404, "", "");
        assert_error(&web.get(&format!("{path}/input_items")).await, 404, "", "");
        let cancelled = HttpResponse::send(web.request("POST", &format!("{path}/cancel"))).await;
        assert_error(&cancelled, 404, "", "");
    }
}

#[tokio::test]
async fn the_tokens_of_a_request_are_counted_before_it_is_sent() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let count = async |body: &Value| {
        let counted = post(&web, "/v1/responses/input_tokens", body).await.json();
        assert_eq!(counted["object"], "response.input_tokens");
        counted["input_tokens"].as_u64().expect("is a number")
    };
    let short = count(&json!({"input": "one word"})).await;
    let long = count(&json!({"input": "one word ".repeat(100)})).await;
    assert!(short > 0 && long > short + 100, "{short} {long}");
    let response = create(&web, &json!({"input": "one word ".repeat(100)})).await;
    let body = json!({"input": "one word", "previous_response_id": id_of(&response)});
    assert!(count(&body).await > long);
    assert_eq!(model.requests().len(), 1);
}
