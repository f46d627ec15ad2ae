//! The doors of OpenAI's protocol, under `/v1`.
//!
//! - `chat_completions`: turns whose history the client sends
//! - `compaction`: summaries that stand for what was said before
//! - `conversations`: conversations and their items
//! - `deleted_items`: items are deleted that a checkpoint stands for
//! - `models`: the configured models
//! - `rate_limits`: the headers about the rate of calls
//! - `refusals`: conversations and items that are refused
//! - `responses`: responses; `websocket`: over a WebSocket
//! - `schema`: answers and events hold to the schema of the Open Responses specification
//! - `sdk_javascript`, `sdk_python`: the protocol's own SDKs

mod chat_completions;
mod compaction;
mod conversations;
mod deleted_items;
mod models;
mod rate_limits;
mod refusals;
mod responses;
mod schema;
mod sdk_javascript;
mod sdk_python;
mod websocket;

use anneal_testkit::{HttpClient, HttpResponse};
use serde_json::{Value, json};

const CONVERSATIONS: &str = "/v1/conversations";

/// Posts this body to this path.
async fn post(web: &HttpClient, path: &str, body: &Value) -> HttpResponse {
    HttpResponse::send(web.json("POST", path, body)).await
}

/// Sends DELETE to this path.
async fn delete(web: &HttpClient, path: &str) -> HttpResponse {
    HttpResponse::send(web.request("DELETE", path)).await
}

/// Asserts that the answer is the protocol's error object with this status, this parameter and this
/// code; empty: null.
#[track_caller]
fn assert_error(answer: &HttpResponse, status: u16, param: &str, code: &str) {
    let error = answer.json()["error"].clone();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (answer.status, text("param"), text("code")),
        (status, param.to_owned(), code.to_owned()),
        "{answer:?}"
    );
    let keys = ["message", "type", "param", "code"];
    let has_all = keys.iter().all(|key| error.get(key).is_some());
    assert!(has_all && error["message"].is_string(), "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(
        answer.header("x-request-id").starts_with("req_"),
        "{answer:?}"
    );
}

/// An item of a user's text.
fn message(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

/// Creates a conversation with these items. Returns its path.
async fn create(web: &HttpClient, items: &Value) -> String {
    let created = post(web, CONVERSATIONS, &json!({"items": items})).await;
    assert_eq!(created.status, 200, "{created:?}");
    let id = created.json()["id"].as_str().expect("an id").to_owned();
    format!("{CONVERSATIONS}/{id}")
}

/// The page of items with these parameters.
async fn list(web: &HttpClient, path: &str, parameters: &str) -> Value {
    let listed = web.get(&format!("{path}/items{parameters}")).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()
}

/// The ids of these items.
fn ids(items: &Value) -> Vec<String> {
    let items = items.as_array().expect("a list").iter();
    items
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect()
}
