//! A client of the HTTP door: requests, JSON answers, and server-sent events one by one.

use std::{net::SocketAddr, time::Duration};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::House;

/// Longest silence of a server.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client of one server.
#[derive(Clone)]
pub struct Web {
    client: reqwest::Client,
    address: SocketAddr,
}

impl House {
    /// A client of this house's HTTP door.
    pub fn web(&self) -> Web {
        Web::at(self.addresses.http)
    }
}

impl Web {
    /// A client of the server that listens there.
    pub fn at(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder().no_proxy().read_timeout(PATIENCE).build().expect("a client");
        Self { client, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request that a test changes further.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A request with a JSON body.
    pub fn json(&self, method: &str, path: &str, body: &Value) -> RequestBuilder {
        self.request(method, path).header("content-type", "application/json").body(body.to_string())
    }

    /// Gets what is there.
    pub async fn get(&self, path: &str) -> Answered {
        Answered::to(self.request("GET", path)).await
    }

    /// A turn, told whole.
    pub async fn chat(&self, agent: &str, body: &Value) -> Vec<Told> {
        self.open_chat(agent, body).await.rest().await
    }

    /// A turn whose events are read one by one.
    pub async fn open_chat(&self, agent: &str, body: &Value) -> Events {
        Events::of(self.json("POST", &format!("/api/agents/{agent}/chat"), body)).await
    }

    /// Comes back to a turn after the event with this id.
    pub async fn resume(&self, agent: &str, id: &str, body: Option<&Value>) -> Events {
        let path = format!("/api/agents/{agent}/chat");
        let request = match body {
            Some(body) => self.json("POST", &path, body),
            None => self.request("POST", &path),
        };
        Events::of(request.header("last-event-id", id)).await
    }
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: reqwest::header::HeaderMap,
    /// The body, as it came.
    pub text: String,
}

impl Answered {
    /// Sends a request and reads its answer.
    pub async fn to(request: RequestBuilder) -> Self {
        Self::of(request.send().await.expect("the server answers")).await
    }

    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, text: response.text().await.expect("the answer is whole") }
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as JSON; null where it is none.
    pub fn json_or_null(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// A header; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Asserts that it is a problem with this status, for this reason, blaming this field (empty: none).
    #[track_caller]
    pub fn assert_problem(&self, status: u16, reason: &str, field: &str) {
        let problem = self.json();
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let said = (self.status, problem["reason"].as_str(), problem["field"].as_str().unwrap_or_default());
        assert_eq!(said, (status, Some(reason), field), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        let kind = format!("urn:anneal:problem:{}", reason.to_lowercase().replace('_', "-"));
        assert_eq!(problem["type"], kind, "{self:?}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{self:?}");
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Its id; empty where it has none.
    pub id: String,
    /// Its data.
    pub data: Value,
}

impl Told {
    /// What kind of event it is.
    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or_default()
    }
}

/// The text of these events: that of the last attempt.
pub fn text_of(told: &[Told]) -> String {
    let last = told.iter().rposition(|event| event.kind() == "attempt").unwrap_or(0);
    let texts = told[last..].iter().filter(|event| event.kind() == "text");
    texts.filter_map(|event| event.data["text"].as_str()).collect()
}

/// Server-sent events as they come.
pub struct Events {
    response: Response,
    unread: Vec<u8>,
}

impl Events {
    /// Sends a request that is answered by events.
    pub async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if response.status() == 200 && kind == "text/event-stream" {
            return Self { response, unread: Vec::new() };
        }
        panic!("no events: {:?}", Answered::of(response).await)
    }

    /// The next event; None when the server has ended them.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(event) = event(&String::from_utf8(block).expect("events are UTF-8")) {
                    return Some(event);
                }
                continue;
            }
            match self.response.chunk().await.expect("the events go on") {
                Some(bytes) => self.unread.extend_from_slice(&bytes),
                None => return None,
            }
        }
    }

    /// The next so many events.
    pub async fn take(&mut self, count: usize) -> Vec<Told> {
        let mut told = Vec::new();
        while told.len() < count {
            told.push(self.next().await.expect("the events go on"));
        }
        told
    }

    /// All events up to the last.
    pub async fn rest(mut self) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(event) = self.next().await {
            told.push(event);
        }
        told
    }
}

/// An event; None where the block is only a comment. A field that is not `id` or `data` is against what is documented.
fn event(block: &str) -> Option<Told> {
    let (mut id, mut data) = (String::new(), None);
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        match line.split_once(": ") {
            Some(("id", value)) => value.clone_into(&mut id),
            Some(("data", value)) => {
                let before = data.replace(serde_json::from_str(value).expect("data is JSON"));
                assert!(before.is_none(), "data is one line: {block}");
            }
            _ => panic!("a field that is not said of: {line}"),
        }
    }
    data.map(|data| Told { id, data })
}
