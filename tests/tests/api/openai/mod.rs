//! The doors of OpenAI's protocol, under `/v1`.
//!
//! - `compaction`: summaries that stand for what was said before
//! - `conversations`: conversations and their items
//! - `responses`: responses; `websocket`: over a WebSocket

mod compaction;
mod conversations;
mod responses;
mod websocket;

use anneal_testkit::{HttpClient, HttpResponse};
use serde_json::Value;

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
