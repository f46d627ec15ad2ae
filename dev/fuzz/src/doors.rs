//! Fuzzes the doors of other protocols: any body, id, query or header is accepted, or refused in the
//! shape of the door with a documented code.
//!
//! Creates of responses, items, compactions, chat completions and messages of the AI SDK are parsed
//! before the database is needed, which is unreachable here. A panic ends the process.

use anneal_server::fuzzing::{Answer, ServerWithoutDatabase};
use arbitrary::{Arbitrary as _, Unstructured};
use http::{Method, Request, header};
use serde_json::Value;
use tokio::{runtime::Runtime, time};

/// The page that documents the reasons of errors. The codes are these in lower case, or of
/// [`OWN_CODES`].
const ERRORS: &str = include_str!("../../../docs/errors.md");

/// The codes of OpenAI's protocol, beside the reasons of this server.
const OWN_CODES: [&str; 26] = [
    "array_above_max_length",
    "context_length_exceeded",
    "conversation_locked",
    "decimal_above_max_value",
    "decimal_below_min_value",
    "empty_array",
    "insufficient_permissions",
    "insufficient_quota",
    "integer_above_max_value",
    "integer_below_min_value",
    "invalid_api_key",
    "invalid_encrypted_content",
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "mutually_exclusive_parameters",
    "object_above_max_properties",
    "previous_response_not_found",
    "rate_limit_exceeded",
    "request_id_reused",
    "string_above_max_length",
    "unknown_parameter",
    "unsupported_parameter",
    "unsupported_tool",
];

/// Maximum size of a refusal in bytes.
const MAX_REFUSAL_BYTES: usize = 2_048;

/// Longer than any deadline, wait or retry interval of a call.
const LONGER_THAN_ALL_TIMERS: time::Duration = time::Duration::from_hours(24);

/// The calls, with `{id}` and `{item}` where ids are. Those with a body come first.
const CALLS: [(&str, &str); 21] = [
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/conversations"),
    ("POST", "/v1/conversations/{id}"),
    ("POST", "/v1/conversations/{id}/items"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/api/agents/{id}/ui"),
    ("GET", "/api/agents/a/ui/{id}/stream"),
    ("GET", "/v1/conversations/{id}"),
    ("DELETE", "/v1/conversations/{id}"),
    ("GET", "/v1/conversations/{id}/items"),
    ("GET", "/v1/conversations/{id}/items/{item}"),
    ("DELETE", "/v1/conversations/{id}/items/{item}"),
    ("GET", "/v1/responses"),
    ("GET", "/v1/responses/{id}"),
    ("DELETE", "/v1/responses/{id}"),
    ("POST", "/v1/responses/{id}/cancel"),
    ("GET", "/v1/responses/{id}/input_items"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{id}"),
];

/// A server without a database.
struct OfflineServer {
    runtime: Runtime,
    server: ServerWithoutDatabase,
    /// The documented codes of errors.
    codes: Vec<String>,
}

impl OfflineServer {
    fn new() -> Self {
        // With the clock paused, timers expire immediately.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("the system has a timer");
        let server = runtime.block_on(async { ServerWithoutDatabase::open() });
        let reasons = ERRORS
            .lines()
            .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
        let own = OWN_CODES.map(str::to_owned);
        Self {
            runtime,
            server,
            codes: reasons.map(str::to_lowercase).chain(own).collect(),
        }
    }

    fn check(&self, request: Request<Vec<u8>>) {
        let name = format!("{} {}", request.method(), request.uri());
        let is_of_ui = request.uri().path().starts_with("/api/");
        let answer = self.runtime.block_on(async {
            let answer = self.server.request(request).await;
            // A task that the call has started ends before the next call.
            time::advance(LONGER_THAN_ALL_TIMERS).await;
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            answer
        });
        let status = answer.status;
        if status.is_success() {
            return;
        }
        assert!(
            status.is_client_error() || status.as_u16() == 503,
            "{name} is answered with {status}"
        );
        assert!(
            answer.body.len() <= MAX_REFUSAL_BYTES,
            "the refusal of {name} has {} bytes",
            answer.body.len()
        );
        if is_of_ui {
            check_sentence(&name, &answer);
        } else {
            self.check_error(&name, &answer);
        }
    }

    /// Checks the error object of OpenAI's protocol.
    fn check_error(&self, name: &str, answer: &Answer) {
        let body: Value = serde_json::from_slice(&answer.body).expect("an error is JSON");
        let error = &body["error"];
        let has_keys = ["message", "type", "param", "code"]
            .iter()
            .all(|key| error.get(key).is_some());
        let has_message = error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty());
        assert!(has_keys && has_message, "{name}: {body}");
        if let Some(code) = error["code"].as_str() {
            let is_documented = self.codes.iter().any(|known| known == code);
            assert!(is_documented && code != "internal", "{name}: {body}");
        }
        assert!(
            answer.headers.contains_key("x-request-id"),
            "{name} has no request id"
        );
    }
}

/// Checks a refusal of the AI SDK's door: the sentence that its client shows.
fn check_sentence(name: &str, answer: &Answer) {
    let text = std::str::from_utf8(&answer.body).expect("a sentence is UTF-8");
    assert!(!text.is_empty(), "{name} is refused without a sentence");
    let content_type = &answer.headers[header::CONTENT_TYPE];
    assert_eq!(content_type, "text/plain; charset=utf-8", "{name}");
}

/// A part of a path: an id of the server's form, or any text.
fn id(from: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    const DIGITS: &str = "0193f9c0000070008000000000000001";
    Ok(match from.int_in_range(0..=7)? {
        0 => format!("conv_{DIGITS}"),
        1 => format!("resp_{DIGITS}"),
        2 => format!("msg_{DIGITS}_1_0"),
        3 => format!("cmp_{DIGITS}_1_4294967295"),
        4 => "a".to_owned(),
        5 => format!("msg_{DIGITS}_{}", <&str>::arbitrary(from)?),
        _ => <&str>::arbitrary(from)?.to_owned(),
    })
}

/// Generates a request to one of the calls. `None` if HTTP itself does not allow it.
fn request(
    (method, path): (&str, &str),
    from: &mut Unstructured<'_>,
) -> arbitrary::Result<Option<Request<Vec<u8>>>> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let mut uri = path.to_owned();
    for name in ["{id}", "{item}"] {
        if uri.contains(name) {
            uri = uri.replace(name, &id(from)?);
        }
    }
    if from.ratio(1, 4)? {
        uri = format!("{uri}?{}", <&str>::arbitrary(from)?);
    }
    let mut request = Request::builder().method(method).uri(uri);
    request = request
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    for name in ["idempotency-key", "anneal-conversation"] {
        if from.ratio(1, 8)? {
            request = request.header(name, <&[u8]>::arbitrary(from)?);
        }
    }
    Ok(request.body(from.bytes(from.len())?.to_vec()).ok())
}

/// The first byte selects the call. Of a call with a body, the rest is the body, unless the byte is
/// large; otherwise it is the data from which a path, a query, headers and a body are generated.
pub fn check(data: &[u8]) {
    thread_local!(static SERVER: OfflineServer = OfflineServer::new());
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let call = CALLS[usize::from(*first) % CALLS.len()];
    let is_plain = call.0 == "POST" && *first < 128;
    let request = if is_plain {
        let path = call
            .1
            .replace("agents/{id}", "agents/a")
            .replace("{id}", "conv_0193f9c0000070008000000000000001");
        let request = Request::post(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json");
        request.body(rest.to_vec()).ok()
    } else {
        // If there are too few bytes, there is nothing to check.
        request(call, &mut Unstructured::new(rest)).ok().flatten()
    };
    if let Some(request) = request {
        SERVER.with(|server| server.check(request));
    }
}
