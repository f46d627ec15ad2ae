//! Every call of the doors of other protocols: what it needs, and a valid body. The list is compared
//! with the documentation, which names every route of the server.

use std::collections::{BTreeMap, BTreeSet};

use anneal_core::caller::Verb::{self, Admin, Append, Read};
use anneal_testkit::{HttpClient, HttpResponse, MODEL, TestApp};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

/// A call of a door.
pub(crate) struct DoorCall {
    pub(crate) method: &'static str,
    /// With `{id}`, `{item}`, `{model}` and `{chat}`.
    pub(crate) path: &'static str,
    pub(crate) verbs: &'static [Verb],
    /// A valid body. None: the call has none.
    pub(crate) body: Option<fn() -> Value>,
}

const fn call(
    method: &'static str,
    path: &'static str,
    verbs: &'static [Verb],
    body: Option<fn() -> Value>,
) -> DoorCall {
    DoorCall {
        method,
        path,
        verbs,
        body,
    }
}

const BOTH: &[Verb] = &[Append, Read];

/// All calls. Those that delete come last.
pub(crate) const CALLS: [DoorCall; 21] = [
    call("POST", "/v1/conversations", &[Append], Some(items)),
    call("GET", "/v1/conversations/{id}", &[Read], None),
    call(
        "POST",
        "/v1/conversations/{id}",
        &[Append],
        Some(|| json!({"metadata": {"taken": "taken"}})),
    ),
    call(
        "POST",
        "/v1/conversations/{id}/items",
        &[Append],
        Some(items),
    ),
    call("GET", "/v1/conversations/{id}/items", &[Read], None),
    call("GET", "/v1/conversations/{id}/items/{item}", &[Read], None),
    call("POST", "/v1/responses", BOTH, Some(input)),
    call("GET", "/v1/responses", BOTH, None),
    call("GET", "/v1/responses/{id}", &[Read], None),
    call("POST", "/v1/responses/{id}/cancel", BOTH, None),
    call("GET", "/v1/responses/{id}/input_items", &[Read], None),
    call("POST", "/v1/responses/input_tokens", &[Read], Some(input)),
    call("POST", "/v1/responses/compact", BOTH, Some(input)),
    call(
        "POST",
        "/v1/chat/completions",
        BOTH,
        Some(|| json!({"model": MODEL, "messages": [{"role": "user", "content": "taken"}]})),
    ),
    call("GET", "/v1/models", &[], None),
    call("GET", "/v1/models/{model}", &[], None),
    call("POST", "/api/agents/{id}/ui", BOTH, Some(turn)),
    call("GET", "/api/agents/{id}/ui/{chat}/stream", BOTH, None),
    call("DELETE", "/v1/conversations/{id}/items/{item}", BOTH, None),
    call("DELETE", "/v1/responses/{id}", &[Admin], None),
    call("DELETE", "/v1/conversations/{id}", &[Admin], None),
];

fn items() -> Value {
    json!({"items": [{"type": "message", "role": "user", "content": "taken"}]})
}

fn input() -> Value {
    json!({"model": MODEL, "input": "taken"})
}

fn turn() -> Value {
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "taken"}]});
    json!({"id": "c", "messages": [message]})
}

/// The ids that paths name.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) conversation: String,
    pub(crate) item: String,
    pub(crate) response: String,
    pub(crate) chat: String,
}

impl Names {
    /// Ids of the form of those of the server that nothing has.
    pub(crate) fn unknown() -> Self {
        let digits = uuid::Uuid::now_v7().as_simple().to_string();
        Self {
            conversation: format!("conv_{digits}"),
            item: format!("msg_{digits}_1_0"),
            response: format!("resp_{digits}"),
            chat: format!("chat_{digits}"),
        }
    }

    /// The text with the same words for all ids.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        text.replace(&self.item, "ITEM")
            .replace(&self.conversation, "CONVERSATION")
            .replace(&self.response, "RESPONSE")
            .replace(&self.chat, "CHAT")
    }
}

impl DoorCall {
    /// The path with these names.
    pub(crate) fn path_of(&self, names: &Names) -> String {
        let id = match self.path {
            path if path.starts_with("/v1/conversations") => &names.conversation,
            path if path.starts_with("/v1/responses") => &names.response,
            _ => "a",
        };
        self.path
            .replace("{id}", id)
            .replace("{item}", &names.item)
            .replace("{model}", MODEL)
            .replace("{chat}", &names.chat)
    }

    /// Whether the path names something that belongs to a tenant.
    pub(crate) fn names_something(&self) -> bool {
        self.path.contains("{id}")
    }

    /// The request with these names and this credential; empty: without one.
    pub(crate) fn request(
        &self,
        web: &HttpClient,
        names: &Names,
        authorization: &str,
    ) -> RequestBuilder {
        let path = self.path_of(names);
        let mut request = match self.body {
            Some(body) => web.json(self.method, &path, &body()),
            None => web.request(self.method, &path),
        };
        if !authorization.is_empty() {
            request = request.header("authorization", authorization);
        }
        request
    }

    pub(crate) fn is_of_ui(&self) -> bool {
        !self.path.starts_with("/v1/")
    }

    /// Asserts that the answer is a refusal with this status, in the shape of the door.
    #[track_caller]
    pub(crate) fn assert_shape(&self, answer: &HttpResponse, status: u16) {
        let what = format!("{} {}: {answer:?}", self.method, self.path);
        assert_eq!(answer.status, status, "{what}");
        if self.is_of_ui() {
            assert_eq!(
                answer.header("content-type"),
                "text/plain; charset=utf-8",
                "{what}"
            );
            let is_sentence = !answer.text.is_empty() && !answer.text.starts_with('{');
            assert!(is_sentence, "{what}");
            return;
        }
        assert_error_object(answer, &what);
    }
}

/// Asserts that the answer is the error object of OpenAI's protocol, with a request id.
#[track_caller]
pub(crate) fn assert_error_object(answer: &HttpResponse, what: &str) {
    let error = answer.json()["error"].clone();
    let keys: BTreeSet<&str> = error
        .as_object()
        .into_iter()
        .flat_map(|error| error.keys().map(String::as_str))
        .collect();
    assert_eq!(
        keys,
        BTreeSet::from(["message", "type", "param", "code"]),
        "{what}"
    );
    let message = error["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{what}");
    let kind = match answer.status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    assert_eq!(error["type"], kind, "{what}");
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    assert!(answer.header("x-request-id").starts_with("req_"), "{what}");
}

/// Method and path of every call in the documentation of the doors.
fn documented_calls() -> BTreeSet<(String, String)> {
    let pages = [
        include_str!("../../../../docs/openai.md"),
        include_str!("../../../../docs/ai-sdk.md"),
    ];
    let spans = pages.iter().flat_map(|page| page.split('`'));
    let calls = spans.filter_map(|span| {
        let (method, path) = span.split_once(' ')?;
        let is_method = ["GET", "POST", "PATCH", "PUT", "DELETE"].contains(&method);
        let is_door = path.starts_with("/v1/") || path.starts_with("/api/agents/{id}/ui");
        (is_method && is_door).then(|| (method.to_owned(), path.to_owned()))
    });
    calls.collect()
}

#[tokio::test]
async fn the_calls_of_these_tests_are_those_of_the_documentation_and_of_the_server() {
    let listed: BTreeSet<(String, String)> = CALLS
        .iter()
        .map(|call| (call.method.to_owned(), call.path.to_owned()))
        .collect();
    assert_eq!(listed, documented_calls());
    // The server names the methods of each path.
    let mut methods = BTreeMap::<&str, BTreeSet<String>>::new();
    for call in &CALLS {
        let of_path = methods.entry(call.path).or_default();
        of_path.insert(call.method.to_owned());
        if call.method == "GET" {
            of_path.insert("HEAD".to_owned());
        }
    }
    let app = TestApp::start().await;
    let names = Names::unknown();
    for call in &CALLS {
        let path = call.path_of(&names);
        let answer = HttpResponse::send(app.http_client().request("PROPFIND", &path)).await;
        call.assert_shape(&answer, 405);
        let allowed: BTreeSet<String> = answer
            .header("allow")
            .split(',')
            .map(|method| method.trim().to_owned())
            .collect();
        assert_eq!(allowed, methods[call.path], "{path}");
    }
}
