//! Compactions: made by the endpoint, sent back, and shown in lists of items.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{HttpResponse, MODEL, Script, ScriptedModel, TestApp, pb};
use serde_json::{Value, json};

use super::{assert_error, post};

const COMPACT: &str = "/v1/responses/compact";
const RESPONSES: &str = "/v1/responses";
const SUMMARY: &str = "Several things were asked about, and each of them was answered.";

/// A model that writes summaries, and answers everything else with its number of words.
async fn summarizing_model() -> ScriptedModel {
    ScriptedModel::start(Script::summarizes).await
}

/// A conversation with a call, long enough for a summary.
fn input() -> Value {
    let log = "The build of the fourth module took eleven seconds and had no warnings. ";
    json!([
        {"role": "user", "content": "Please build everything."},
        {"type": "function_call", "call_id": "c1", "name": "build", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": log.repeat(40)},
        {"role": "assistant", "content": [{"type": "output_text", "text": "It is built."}]},
        {"role": "user", "content": "Thank you."},
    ])
}

async fn compact(app: &TestApp, body: &Value) -> Value {
    let answer = post(&app.http_client(), COMPACT, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// The types of the items of a compacted conversation.
fn types(compacted: &Value) -> Vec<String> {
    let items = compacted["output"].as_array().expect("has items").iter();
    items
        .map(|item| item["type"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn the_messages_of_the_user_stay_and_one_compaction_stands_for_the_rest() {
    let model = summarizing_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let compacted = compact(&app, &json!({"model": MODEL, "input": input()})).await;
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["created_at"].is_i64());
    assert_eq!(types(&compacted), ["message", "message", "compaction"]);
    let compaction = &compacted["output"][2];
    let summary = compaction["summary"][0]["text"]
        .as_str()
        .unwrap_or_default();
    assert!(summary.contains(SUMMARY), "{compacted}");
    assert_eq!(compaction["created_by"], MODEL);
    let usage = &compacted["usage"];
    assert!(usage["input_tokens"].as_u64() > Some(0), "{usage}");
    assert_eq!(
        usage["total_tokens"].as_u64(),
        usage["input_tokens"]
            .as_u64()
            .zip(usage["output_tokens"].as_u64())
            .map(|(input, output)| input + output)
    );
    let mut again = compacted["output"].as_array().expect("a list").clone();
    again.extend(input().as_array().expect("a list").clone());
    let again = compact(&app, &json!({"model": MODEL, "input": again})).await;
    let types = types(&again);
    assert_eq!(types.iter().filter(|kind| *kind == "compaction").count(), 1);
    assert_eq!(types.last().map(String::as_str), Some("compaction"));
}

#[tokio::test]
async fn what_comes_back_is_sent_to_the_model_as_the_summary() {
    let model = summarizing_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let compacted = compact(&app, &json!({"model": MODEL, "input": input()})).await;
    let mut items = compacted["output"].as_array().expect("a list").clone();
    items.push(json!({"role": "user", "content": "Go on."}));
    for store in [false, true] {
        let body = json!({"model": MODEL, "input": items, "store": store});
        let answer = post(&web, RESPONSES, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = model
            .requests()
            .last()
            .expect("was called")
            .texts()
            .join("\n");
        assert!(sent.contains("[Summary of the conversation"), "{sent}");
        assert!(sent.contains(SUMMARY), "{sent}");
        assert!(sent.contains("Please build everything."), "{sent}");
        if store {
            let id = answer.json()["id"].as_str().expect("an id").to_owned();
            let listed = web
                .get(&format!("{RESPONSES}/{id}/input_items?order=asc"))
                .await
                .json();
            let shown = &listed["data"][2];
            assert_eq!(shown["encrypted_content"], items[2]["encrypted_content"]);
        }
    }
}

#[tokio::test]
async fn a_short_conversation_is_compacted_without_a_call_of_the_model() {
    let model = summarizing_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let body = json!({"model": MODEL, "input": [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
    ]});
    let compacted = compact(&app, &body).await;
    assert_eq!(types(&compacted), ["message", "compaction"]);
    assert_eq!(
        compacted["output"][1]["summary"][0]["text"],
        "[assistant] Hello."
    );
    assert_eq!(compacted["usage"]["total_tokens"], 0);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn an_extract_replaces_a_model_that_refuses() {
    let model = ScriptedModel::start(|_| Script::status(400, &[], "{}")).await;
    let app = TestApp::with_scripted_model(&model).await;
    let compacted = compact(&app, &json!({"model": MODEL, "input": input()})).await;
    assert_eq!(compacted["output"][2]["created_by"], "extractive");
    let busy = ScriptedModel::start(|_| Script::status(503, &[], "{}")).await;
    let app = TestApp::with_scripted_model(&busy).await;
    let body = json!({"model": MODEL, "input": input()});
    let answer = post(&app.http_client(), COMPACT, &body).await;
    assert_eq!(answer.status, 503, "it may succeed later: {answer:?}");
}

#[tokio::test]
async fn a_request_that_cannot_be_compacted_is_refused_by_its_parameter() {
    let app = TestApp::with_scripted_model(&summarizing_model().await).await;
    let web = app.http_client();
    let missing = "missing_required_parameter";
    for (body, status, param, code) in [
        (json!({"input": "a"}), 400, "model", missing),
        (json!({"model": MODEL}), 400, "input", missing),
        (
            json!({"model": MODEL, "input": []}),
            400,
            "input",
            "empty_array",
        ),
        (
            json!({"model": "none", "input": "a"}),
            404,
            "model",
            "model_not_found",
        ),
        (
            json!({"model": MODEL, "previous_response_id": "resp_1"}),
            404,
            "",
            "previous_response_not_found",
        ),
        (
            json!({"model": MODEL, "input": [{"type": "compaction", "encrypted_content": "x"}]}),
            400,
            "input[0].encrypted_content",
            "invalid_encrypted_content",
        ),
    ] {
        assert_error(&post(&web, COMPACT, &body).await, status, param, code);
    }
}

#[tokio::test]
async fn a_stored_response_is_compacted_with_what_was_before_it() {
    let model = summarizing_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let first = post(&web, RESPONSES, &json!({"model": MODEL, "input": input()})).await;
    let id = first.json()["id"].clone();
    let body = json!({"model": MODEL, "previous_response_id": id});
    let compacted = compact(&app, &body).await;
    assert_eq!(types(&compacted), ["message", "message", "compaction"]);
}

#[tokio::test]
async fn a_checkpoint_is_a_compaction_among_the_items_of_its_conversation() {
    let app = TestApp::with_scripted_model(&summarizing_model().await).await;
    let web = app.http_client();
    let conversation = app.conversation().await;
    conversation
        .append(&"They spoke of the weather. ".repeat(30))
        .await;
    conversation.append("And of tea.").await;
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        last_message_id: 1,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    app.contexts()
        .import_checkpoint(ask)
        .await
        .expect("imports");
    let hex = conversation.uuid().as_simple().to_string();
    let path = format!("/v1/conversations/conv_{hex}/items");
    let listed = web.get(&format!("{path}?order=asc")).await.json();
    let items = listed["data"].as_array().expect("a list");
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [Some("message"), Some("compaction"), Some("message")]
    );
    assert_eq!(items[1]["summary"][0]["text"], "They spoke.");
    assert_eq!(items[1]["created_by"], "elsewhere-1");
    let id = items[1]["id"].as_str().expect("an id");
    assert_eq!(web.get(&format!("{path}/{id}")).await.json(), items[1]);
    let after = web
        .get(&format!("{path}?order=asc&after={id}"))
        .await
        .json();
    assert_eq!(after["data"], json!([items[2]]));
    let added = post(&web, &path, &json!({"items": [items[1]]})).await;
    assert_eq!(added.status, 200, "{added:?}");
    assert_eq!(
        added.json()["data"][0]["encrypted_content"],
        items[1]["encrypted_content"]
    );
}

#[tokio::test]
async fn a_compaction_of_another_tenant_is_refused() {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    let web = app.http_client();
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let send = async |key: &str, method: &str, path: &str, body: &Value| {
        let request = web.json(method, path, body).header("authorization", key);
        HttpResponse::send(request).await
    };
    let long = "They spoke of the weather. ".repeat(30);
    let items = json!({"items": [{"role": "user", "content": long}]});
    let created = send(&anna, "POST", "/v1/conversations", &items).await;
    let id = created.json()["id"].as_str().expect("an id").to_owned();
    let uuid = uuid::Uuid::try_parse(&id["conv_".len()..]).expect("is a UUID");
    let ask = pb::ImportCheckpointRequest {
        conversation_id: uuid.to_string(),
        last_message_id: 1,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    let mut ask = tonic::Request::new(ask);
    let credential = anna.parse().expect("is metadata");
    ask.metadata_mut().insert("authorization", credential);
    app.contexts()
        .import_checkpoint(ask)
        .await
        .expect("imports");
    let path = format!("/v1/conversations/{id}/items");
    let listed = send(&anna, "GET", &path, &json!({})).await.json();
    let compaction = &listed["data"][0];
    assert_eq!(compaction["type"], "compaction", "{listed}");
    let items = json!({"items": [compaction]});
    let own = send(&anna, "POST", "/v1/conversations", &items).await;
    assert_eq!(own.status, 200, "{own:?}");
    let foreign = send(&bert, "POST", "/v1/conversations", &items).await;
    let (param, code) = ("items[0].encrypted_content", "invalid_encrypted_content");
    assert_error(&foreign, 400, param, code);
}
