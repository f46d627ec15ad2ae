//! Fuzzes requests: for any bytes, an RPC or an HTTP endpoint either accepts the request or refuses
//! it with a documented reason.
//!
//! The server is complete except for its database, which is unreachable: requests that pass all
//! earlier checks fail there. A panic in a call ends the process here; the real server would catch
//! it.

use std::collections::HashSet;

use anneal_server::fuzzing::{Answer, Refusal, Rpc, ServerWithoutDatabase, rpcs};
use arbitrary::{Arbitrary as _, Unstructured};
use http::{Method, Request, header};
use serde_json::Value;
use tokio::{runtime::Runtime, time};

/// The page that documents the reasons of errors. Each has a heading there.
const ERRORS: &str = include_str!("../../../docs/errors.md");

/// Maximum size of an error message in bytes. The longest ones contain a model name from the
/// request.
const MAX_TEXT_BYTES: usize = 2_048;

/// Maximum number of messages of one stream.
const MAX_MESSAGES: usize = 4;

/// Longer than any deadline, wait or retry interval of a call.
const LONGER_THAN_ALL_TIMERS: time::Duration = time::Duration::from_hours(24);

/// A server without a database, its RPCs, and the reasons with which it may refuse.
struct OfflineServer {
    runtime: Runtime,
    server: ServerWithoutDatabase,
    rpcs: Vec<Rpc>,
    /// The documented reasons of errors.
    reasons: HashSet<&'static str>,
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
        let headings = ERRORS
            .lines()
            .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
        Self {
            runtime,
            server,
            rpcs: rpcs(),
            reasons: headings.collect(),
        }
    }

    fn check_rpc(&self, rpc: &Rpc, body: &[u8]) {
        let messages = if rpc.client_streams {
            split_messages(body)
        } else {
            vec![body]
        };
        let refusal = self.runtime.block_on(async {
            let refusal = self.server.call(&rpc.path, &messages).await;
            drain_background_work().await;
            refusal
        });
        if let Some(refusal) = refusal {
            self.assert_documented(&rpc.path, &refusal);
        }
    }

    fn assert_documented(&self, request_name: &str, refusal: &Refusal) {
        let Refusal {
            reason,
            fields,
            text,
        } = refusal;
        assert!(
            self.reasons.contains(reason.as_str()),
            "{request_name} refuses without a documented reason: {refusal:?}"
        );
        assert!(
            reason != "INTERNAL",
            "{request_name} fails with INTERNAL: {refusal:?}"
        );
        assert!(
            text.len() <= MAX_TEXT_BYTES,
            "the error message of {request_name} is too long: {refusal:?}"
        );
        let names_a_field = matches!(reason.as_str(), "INVALID_FIELD" | "LIMIT_EXCEEDED");
        assert!(
            fields.len() == usize::from(names_a_field),
            "{request_name} refuses with {reason} and names the fields {fields:?}"
        );
        assert!(
            fields.iter().all(|field| is_path(field)),
            "{request_name} names {fields:?}, which are not paths of fields"
        );
    }

    fn check_http(&self, request: Request<Vec<u8>>) {
        let request_name = format!("{} {}", request.method(), request.uri());
        let answer_has_body = request.method() != Method::HEAD;
        let answer = self.runtime.block_on(async {
            let answer = self.server.request(request).await;
            drain_background_work().await;
            answer
        });
        let Answer {
            status,
            headers,
            body,
        } = answer;
        if status.is_success() {
            return;
        }
        assert!(
            status.is_client_error() || status.as_u16() == 503,
            "{request_name} is answered with {status}"
        );
        assert_eq!(
            headers[header::CONTENT_TYPE],
            "application/problem+json",
            "{request_name}"
        );
        if !answer_has_body {
            return;
        }
        let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
        assert_eq!(problem["status"], status.as_u16(), "{request_name}");
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        assert!(
            self.reasons.contains(text("reason").as_str()),
            "{request_name} has no documented reason: {problem}"
        );
        assert!(
            text("reason") != "INTERNAL",
            "{request_name} fails with INTERNAL: {problem}"
        );
    }
}

/// Waits until everything that a call started in the background has finished, so that the next call
/// begins in the same state. Tasks may wake other tasks, so all are polled several times.
async fn drain_background_work() {
    time::advance(LONGER_THAN_ALL_TIMERS).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// Whether this looks like a field's path in a request: lower-case names, and indexes of lists.
fn is_path(field: &str) -> bool {
    field.split('.').all(|name| !name.is_empty())
        && field
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c))
}

/// Splits bytes into the messages of a stream. Each is preceded by its length in two bytes. The
/// bytes after [`MAX_MESSAGES`] messages are ignored.
fn split_messages(mut body: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = body
        .split_first_chunk::<2>()
        .filter(|_| pieces.len() < MAX_MESSAGES)
    {
        let (piece, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
        pieces.push(piece);
        body = rest;
    }
    pieces
}

/// Generates an HTTP request, mostly to an existing endpoint. `None` if HTTP itself does not allow
/// it.
fn request(from: &mut Unstructured<'_>) -> arbitrary::Result<Option<Request<Vec<u8>>>> {
    const SESSION_ID: &str = "0193f9c0-0000-7000-8000-000000000001";
    let method = *from.choose(&["GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"])?;
    let path = match from.int_in_range(0..=6)? {
        0 => "/api/agents/a/chat".to_owned(),
        1 => "/api/agents/a/sessions".to_owned(),
        2 => format!("/api/agents/a/sessions/{SESSION_ID}"),
        3 => format!("/api/agents/a/sessions/{SESSION_ID}/events"),
        4 => format!("/api/agents/{}/sessions", <&str>::arbitrary(from)?),
        5 => format!("/api/agents/a/sessions/{}/events", <&str>::arbitrary(from)?),
        _ => format!("/{}", <&str>::arbitrary(from)?),
    };
    let query = <&str>::arbitrary(from)?;
    let mut request = Request::builder()
        .method(method)
        .uri(format!("{path}?{query}"));
    request = request.header(header::HOST, "localhost");
    if from.ratio(7, 8)? {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if from.ratio(1, 4)? {
        request = request.header("last-event-id", <&[u8]>::arbitrary(from)?);
    }
    Ok(request.body(from.bytes(from.len())?.to_vec()).ok())
}

/// The first byte selects an RPC, by its number in the list of RPCs, or HTTP. The rest is the
/// request.
pub fn check(data: &[u8]) {
    thread_local!(static SERVER: OfflineServer = OfflineServer::new());
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    SERVER.with(|server| {
        // Each RPC has a number; eight further numbers select HTTP.
        match server
            .rpcs
            .get(usize::from(*first) % (server.rpcs.len() + 8))
        {
            Some(rpc) => server.check_rpc(rpc, rest),
            None => {
                if let Ok(Some(request)) = request(&mut Unstructured::new(rest)) {
                    server.check_http(request);
                }
            }
        }
    });
}
