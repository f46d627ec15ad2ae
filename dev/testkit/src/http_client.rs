//! A client of the HTTP API: requests, JSON answers, server-sent events one by one.

use std::{net::SocketAddr, time::Duration};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::TestApp;

/// A call fails if no byte arrives from the server for this long.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A client of one server.
#[derive(Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    address: SocketAddr,
}

impl TestApp {
    /// A client of this app's HTTP port.
    pub fn http_client(&self) -> HttpClient {
        HttpClient::at(self.addresses.http)
    }
}

impl HttpClient {
    /// A client of the server at this address.
    pub fn at(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .read_timeout(READ_TIMEOUT)
            .build()
            .expect("a client");
        Self { client, address }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request that a test completes and sends.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        self.client
            .request(method, format!("http://{}{path}", self.address))
    }

    /// A request with a JSON body.
    pub fn json(&self, method: &str, path: &str, body: &Value) -> RequestBuilder {
        self.request(method, path)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// GET of this path.
    pub async fn get(&self, path: &str) -> HttpResponse {
        HttpResponse::send(self.request("GET", path)).await
    }

    /// Runs a chat turn and reads all of its events.
    pub async fn chat(&self, agent: &str, body: &Value) -> Vec<SseEvent> {
        self.open_chat(agent, body).await.rest().await
    }

    /// Starts a chat turn. The test reads its events one by one.
    pub async fn open_chat(&self, agent: &str, body: &Value) -> SseStream {
        SseStream::open(self.json("POST", &format!("/api/agents/{agent}/chat"), body)).await
    }

    /// Resumes a turn after the event with this id, with the turn's request as body or without one.
    pub async fn resume(&self, agent: &str, id: &str, body: Option<&Value>) -> SseStream {
        let path = format!("/api/agents/{agent}/chat");
        let request = match body {
            Some(body) => self.json("POST", &path, body),
            None => self.request("POST", &path),
        };
        SseStream::open(request.header("last-event-id", id)).await
    }
}

/// An answer of the server.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: reqwest::header::HeaderMap,
    /// The body as text.
    pub text: String,
}

impl HttpResponse {
    /// Sends a request and reads its answer.
    pub async fn send(request: RequestBuilder) -> Self {
        Self::read(request.send().await.expect("the server answers")).await
    }

    /// Sends a request and reads its answer. None: the server closes the connection before the
    /// answer is read, for example because it refuses a body that is not sent yet.
    pub async fn try_send(request: RequestBuilder) -> Option<Self> {
        match request.send().await {
            Ok(response) => Some(Self::read(response).await),
            Err(_) => None,
        }
    }

    async fn read(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self {
            status,
            headers,
            text: response.text().await.expect("the answer is whole"),
        }
    }

    /// The body, parsed as JSON. Panics if it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body, parsed as JSON; null if it is not JSON.
    pub fn json_or_null(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A header's value; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Asserts that the answer is a problem document with this status, this reason and this field
    /// (empty: no field).
    #[track_caller]
    pub fn assert_problem(&self, status: u16, reason: &str, field: &str) {
        let problem = self.json();
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{self:?}"
        );
        let answered = (
            self.status,
            problem["reason"].as_str(),
            problem["field"].as_str().unwrap_or_default(),
        );
        assert_eq!(answered, (status, Some(reason), field), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        let kind = format!(
            "urn:anneal:problem:{}",
            reason.to_lowercase().replace('_', "-")
        );
        assert_eq!(problem["type"], kind, "{self:?}");
        assert!(
            problem["title"].is_string() && problem["detail"].is_string(),
            "{self:?}"
        );
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub struct SseEvent {
    /// The event's id. Empty if it has none.
    pub id: String,
    /// The event's data, which is JSON.
    pub data: Value,
}

impl SseEvent {
    /// The type of the event, from its data.
    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or_default()
    }
}

/// The text of the answer: all text after the newest `attempt` event, or all text if there is no
/// such event.
pub fn text_of(events: &[SseEvent]) -> String {
    let last = events
        .iter()
        .rposition(|event| event.kind() == "attempt")
        .unwrap_or(0);
    let texts = events[last..].iter().filter(|event| event.kind() == "text");
    texts
        .filter_map(|event| event.data["text"].as_str())
        .collect()
}

/// A stream of server-sent events.
pub struct SseStream {
    response: Response,
    /// Received bytes of events that [`Self::next`] has not returned.
    pending: Vec<u8>,
}

impl SseStream {
    /// Sends a request whose answer is an event stream.
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let content_type = response
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if response.status() == 200 && content_type == "text/event-stream" {
            return Self {
                response,
                pending: Vec::new(),
            };
        }
        panic!(
            "the answer is not an event stream: {:?}",
            HttpResponse::read(response).await
        )
    }

    /// Waits for the next event. None when the server has closed the stream.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                if let Some(event) =
                    parse_event(&String::from_utf8(block).expect("events are UTF-8"))
                {
                    return Some(event);
                }
                continue;
            }
            match self.response.chunk().await.expect("the stream continues") {
                Some(bytes) => self.pending.extend_from_slice(&bytes),
                None => return None,
            }
        }
    }

    /// Waits for the next `count` events.
    pub async fn take(&mut self, count: usize) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await.expect("the stream continues"));
        }
        events
    }

    /// Reads all remaining events, until the server closes the stream.
    pub async fn rest(mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// Parses an event; None for a comment block. Panics on any field other than `id` and `data`: the
/// API documents no others.
fn parse_event(block: &str) -> Option<SseEvent> {
    let (mut id, mut data) = (String::new(), None);
    for line in block
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(':'))
    {
        match line.split_once(": ") {
            Some(("id", value)) => value.clone_into(&mut id),
            Some(("data", value)) => {
                let before = data.replace(serde_json::from_str(value).expect("data is JSON"));
                assert!(before.is_none(), "data is one line: {block}");
            }
            _ => panic!("a field that is not documented: {line}"),
        }
    }
    data.map(|data| SseEvent { id, data })
}
