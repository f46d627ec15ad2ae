//! Chat completions.
//!
//! - `answers`: whole and streamed answers, tools, nothing stored
//! - `stored`: completions in a conversation
//! - `refusals`: requests that are refused

mod answers;
mod refusals;
mod stored;

use anneal_testkit::{HttpClient, HttpResponse, MODEL};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/chat/completions";
/// Names the conversation of a request and of an answer.
const CONVERSATION: &str = "anneal-conversation";

fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A request with these messages.
fn ask(messages: &[Value]) -> Value {
    json!({"model": MODEL, "messages": messages})
}

/// The request with these further parameters.
fn with(mut ask: Value, more: &Value) -> Value {
    let more = more.as_object().cloned().unwrap_or_default();
    ask.as_object_mut().expect("an object").extend(more);
    ask
}

/// Sends a request with these headers.
async fn send(web: &HttpClient, body: &Value, headers: &[(&str, &str)]) -> HttpResponse {
    let mut request = web.json("POST", COMPLETIONS, body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    HttpResponse::send(request).await
}

/// The message of a completion.
#[track_caller]
fn message_of(answer: &HttpResponse) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["choices"][0]["message"].clone()
}

/// The chunks of a stream that ends with `[DONE]`.
#[track_caller]
fn chunks_of(answer: &HttpResponse) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let frames = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let mut frames: Vec<&str> = frames.collect();
    assert_eq!(frames.pop(), Some("[DONE]"), "{answer:?}");
    let parse = |frame: &str| serde_json::from_str(frame).expect("is JSON");
    frames.into_iter().map(parse).collect()
}
