//! The door of the AI SDK.
//!
//! - `turns`: turns, other answers, edits and outputs of tools; refusals
//! - `resume`: an answer is read once more, at any server; nothing to resume
//! - `killed_servers`: the server is killed amid an answer, which another one sends whole
//! - `import`: a chat begins with a history that the client brings
//! - `sdk`: the AI SDK itself

mod import;
mod killed_servers;
mod resume;
mod sdk;
mod turns;

use anneal_testkit::{HttpClient, HttpResponse};
use reqwest::{RequestBuilder, Response, header::HeaderValue};
use serde_json::{Value, json};

/// The path to which clients post the turns of agent `a`.
const UI: &str = "/api/agents/a/ui";

/// The data of the last event.
const END: &str = "[DONE]";

/// The path from which clients resume a chat of agent `a`.
fn resume_path(chat: &str) -> String {
    format!("{UI}/{chat}/stream")
}

/// A message of the user.
fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// The body that `DefaultChatTransport` sends for a new message.
fn submit(chat: &str, messages: &[Value]) -> Value {
    json!({"id": chat, "messages": messages, "trigger": "submit-message"})
}

/// The body for another answer to the message with this id.
fn regenerate(chat: &str, messages: &[Value], message_id: &str) -> Value {
    json!({"id": chat, "messages": messages, "trigger": "regenerate-message", "messageId": message_id})
}

/// A stream of chunks.
struct ChunkStream {
    response: Response,
    pending: Vec<u8>,
}

impl ChunkStream {
    /// Sends a request whose answer is a stream of chunks.
    async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let status = response.status();
        if status != 200 {
            let text = response.text().await.unwrap_or_default();
            panic!("the answer is no stream of chunks: {status}: {text}");
        }
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-vercel-ai-ui-message-stream", "v1"),
            ("x-accel-buffering", "no"),
        ] {
            let sent = response.headers().get(name).map(HeaderValue::as_bytes);
            assert_eq!(sent, Some(value.as_bytes()), "{name}");
        }
        Self {
            response,
            pending: Vec::new(),
        }
    }

    /// Posts a turn.
    async fn post(web: &HttpClient, body: &Value) -> Self {
        Self::open(web.json("POST", UI, body)).await
    }

    /// The next chunk, or [`END`]. None when the server has closed the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("events are UTF-8");
                match block.trim_end().strip_prefix("data: ") {
                    Some(END) => return Some(json!(END)),
                    Some(data) => {
                        return Some(serde_json::from_str(data).expect("data is one line of JSON"));
                    }
                    None => assert!(block.starts_with(':'), "{block}"),
                }
                continue;
            }
            match self.response.chunk().await.expect("the stream continues") {
                Some(bytes) => self.pending.extend_from_slice(&bytes),
                None => return None,
            }
        }
    }

    /// Reads until the first chunk of this type.
    async fn read_until(&mut self, kind: &str) -> Vec<Value> {
        let mut chunks = Vec::new();
        loop {
            let chunk = self.next().await.expect("the stream continues");
            chunks.push(chunk);
            if chunks.last().is_some_and(|chunk| chunk["type"] == kind) {
                return chunks;
            }
        }
    }

    /// All chunks, without the [`END`] that must follow them.
    async fn rest(mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        while let Some(chunk) = self.next().await {
            chunks.push(chunk);
        }
        assert_eq!(chunks.pop(), Some(json!(END)), "{chunks:?}");
        for chunk in &chunks {
            assert!(
                !has_null(chunk),
                "a null ends the stream in the client: {chunk}"
            );
        }
        chunks
    }
}

/// Whether a key of a chunk has no value.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().any(has_null),
        Value::Array(entries) => entries.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Runs a turn and returns its chunks.
async fn run(web: &HttpClient, body: &Value) -> Vec<Value> {
    ChunkStream::post(web, body).await.rest().await
}

/// The types of chunks, of several of one type in a row the first.
fn kinds(chunks: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["type"].as_str().expect("a type"))
        .collect();
    kinds.dedup();
    kinds
}

/// The text of an answer.
fn text(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    deltas.filter_map(|chunk| chunk["delta"].as_str()).collect()
}

/// The id of the message of the client that an answer becomes.
fn message_id(chunks: &[Value]) -> String {
    assert_eq!(chunks[0]["type"], "start", "{chunks:?}");
    chunks[0]["messageId"].as_str().expect("an id").to_owned()
}

/// The messages of the conversation that stand, as the HTTP API shows them.
async fn messages(web: &HttpClient, chunks: &[Value]) -> Vec<Value> {
    let id = chunks[0]["messageMetadata"]["conversationId"]
        .as_str()
        .expect("start names the conversation");
    let session = web
        .get(&format!("/api/agents/a/sessions/{id}"))
        .await
        .json();
    session["messages"].as_array().expect("a list").clone()
}

/// The roles and the first texts of messages.
fn outline(messages: &[Value]) -> Vec<(&str, &str)> {
    let outline = messages.iter().map(|message| {
        let text = message["content"][0]["text"].as_str();
        (
            message["role"].as_str().expect("a role"),
            text.unwrap_or_default(),
        )
    });
    outline.collect()
}

/// Asserts that a request is refused with this status, and with a sentence that has these words.
async fn check_refusal(request: RequestBuilder, status: u16, words: &str) {
    let refused = HttpResponse::send(request).await;
    assert_eq!(refused.status, status, "{refused:?}");
    assert!(refused.text.contains(words), "{words}: {refused:?}");
}
