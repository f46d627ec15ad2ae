//! Responses.
//!
//! - `create`: plain, as a stream, stored or not; what is refused; tools; repeated creates
//! - `chains`: a response continues another one, or a conversation
//! - `requests`: what of a request is sent, shown, counted and refused
//! - `background`: responses in the background are retrieved, resumed and cancelled
//! - `long_chains`: what the thirtieth response of a chain costs
//! - `resumption`: streams that are cut, and servers that are killed

mod background;
mod chains;
mod create;
mod long_chains;
mod requests;
mod resumption;

use anneal_testkit::{HttpClient, HttpResponse, eventually};
use serde_json::{Value, json};

use super::post;

/// The path of creates.
pub(super) const RESPONSES: &str = "/v1/responses";

/// Creates a response, which must succeed.
pub(super) async fn create(web: &HttpClient, body: &Value) -> Value {
    let answer = post(web, RESPONSES, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Creates a response with an idempotency key.
async fn create_with_key(web: &HttpClient, key: &str, body: &Value) -> HttpResponse {
    let request = web.json("POST", RESPONSES, body);
    HttpResponse::send(request.header("idempotency-key", key)).await
}

/// The text of each item of a conversation, in order.
async fn list_texts(web: &HttpClient, conversation: &str) -> Vec<Value> {
    let path = format!("/v1/conversations/{conversation}/items?order=asc");
    let listed = web.get(&path).await.json();
    let items = listed["data"].as_array().expect("is a list").iter();
    items
        .map(|item| item["content"][0]["text"].clone())
        .collect()
}

/// Creates a response and reads its events.
pub(super) async fn create_stream(web: &HttpClient, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    let answer = post(web, RESPONSES, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    read_events(&answer)
}

/// GET of a response.
pub(super) async fn retrieve(web: &HttpClient, id: &str) -> Value {
    let answer = web.get(&format!("{RESPONSES}/{id}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Retrieves a response until it has ended.
async fn wait_for_end(web: &HttpClient, id: &str) -> Value {
    let mut response = Value::Null;
    eventually("the response ends", async || {
        response = retrieve(web, id).await;
        !matches!(response["status"].as_str(), Some("queued" | "in_progress"))
    })
    .await;
    response
}

/// The events of a stream. Asserts that each frame has the name of its event, and that the last
/// frame is `[DONE]`.
#[track_caller]
pub(super) fn read_events(answer: &HttpResponse) -> Vec<Value> {
    let mut frames: Vec<&str> = answer
        .text
        .split("\n\n")
        .filter(|frame| !frame.is_empty() && !frame.starts_with(':'))
        .collect();
    assert_eq!(frames.pop(), Some("data: [DONE]"), "{answer:?}");
    frames
        .into_iter()
        .map(|frame| {
            let (name, data) = frame.split_once('\n').expect("has two lines");
            let data = data.strip_prefix("data: ").expect("has data");
            let event: Value = serde_json::from_str(data).expect("is JSON");
            assert_eq!(
                name.strip_prefix("event: "),
                event["type"].as_str(),
                "{frame}"
            );
            event
        })
        .collect()
}

/// The number of an event.
fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().expect("has a number")
}

/// The text of a response.
fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().into_iter().flatten();
    let parts = items.flat_map(|item| item["content"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// The text of all deltas.
fn streamed_text(events: &[Value]) -> String {
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    deltas.filter_map(|event| event["delta"].as_str()).collect()
}

/// The id of a response.
pub(super) fn id_of(response: &Value) -> String {
    response["id"].as_str().expect("has an id").to_owned()
}

/// A tool without parameters.
pub(super) fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}})
}
