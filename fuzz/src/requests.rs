//! Requests: whatever the bytes, an RPC or an endpoint answers with a documented reason, or lets them in.
//!
//! The server is whole but for its database, which cannot be reached: what every check before it accepts ends there. A panic
//! in a call ends the process, although the server would catch it.

use std::collections::HashSet;

use anneal_server::fuzzing::{Answer, Doors, Refusal, Rpc, rpcs};
use arbitrary::{Arbitrary as _, Unstructured};
use http::{Method, Request, header};
use serde_json::Value;
use tokio::{runtime::Runtime, time};

const ERRORS: &str = include_str!("../../docs/errors.md");

/// Bytes of a refusal's text: the largest that names something of the caller's names a model.
const TEXT_BYTES: usize = 2_048;

/// Messages of one stream.
const MESSAGES: usize = 4;

/// Everything that a call's deadline, a wait or a repetition could be waiting for is over after so long.
const ALL_DAY: time::Duration = time::Duration::from_hours(24);

/// A server, and what may be asked of it.
struct House {
    runtime: Runtime,
    doors: Doors,
    rpcs: Vec<Rpc>,
    reasons: HashSet<&'static str>,
}

impl House {
    fn new() -> Self {
        // Nobody waits for anything in here: time passes at once.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("the system has a timer");
        let doors = runtime.block_on(async { Doors::open() });
        let headings = ERRORS.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
        Self { runtime, doors, rpcs: rpcs(), reasons: headings.collect() }
    }

    fn rpc(&self, rpc: &Rpc, body: &[u8]) {
        let messages = if rpc.streams { pieces(body) } else { vec![body] };
        let refusal = self.runtime.block_on(async {
            let refusal = self.doors.call(&rpc.path, &messages).await;
            settled().await;
            refusal
        });
        if let Some(refusal) = refusal {
            self.is_documented(&rpc.path, &refusal);
        }
    }

    fn is_documented(&self, asked: &str, refusal: &Refusal) {
        let Refusal { reason, fields, text } = refusal;
        assert!(self.reasons.contains(reason.as_str()), "{asked} refuses without a documented reason: {refusal:?}");
        assert!(reason != "INTERNAL", "{asked} broke: {refusal:?}");
        assert!(text.len() <= TEXT_BYTES, "{asked} explains at length: {refusal:?}");
        let blames = matches!(reason.as_str(), "INVALID_FIELD" | "LIMIT_EXCEEDED");
        assert!(fields.len() == usize::from(blames), "{asked} blames {fields:?} for {reason}");
        assert!(fields.iter().all(|field| is_path(field)), "{asked} blames {fields:?}");
    }

    fn http(&self, request: Request<Vec<u8>>) {
        let asked = format!("{} {}", request.method(), request.uri());
        let has_body = request.method() != Method::HEAD;
        let answer = self.runtime.block_on(async {
            let answer = self.doors.request(request).await;
            settled().await;
            answer
        });
        let Answer { status, headers, body } = answer;
        if status.is_success() {
            return;
        }
        assert!(status.is_client_error() || status.as_u16() == 503, "{asked} is answered with {status}");
        assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json", "{asked}");
        if !has_body {
            return;
        }
        let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
        assert_eq!(problem["status"], status.as_u16(), "{asked}");
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        assert!(self.reasons.contains(text("reason").as_str()), "{asked} has no documented reason: {problem}");
        assert!(text("reason") != "INTERNAL", "{asked} broke: {problem}");
    }
}

/// Lets what a call has left behind come to its end, so that the next one begins as this one did.
async fn settled() {
    time::advance(ALL_DAY).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// A path into a request: names, and places in lists.
fn is_path(field: &str) -> bool {
    field.split('.').all(|name| !name.is_empty())
        && field.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c))
}

/// The messages of a stream: each after its length in two bytes; what is left is the last one.
fn pieces(mut body: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<2>().filter(|_| pieces.len() < MESSAGES) {
        let (piece, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
        pieces.push(piece);
        body = rest;
    }
    pieces
}

/// A request over HTTP, mostly to where something answers; None where HTTP itself would refuse it.
fn request(from: &mut Unstructured<'_>) -> arbitrary::Result<Option<Request<Vec<u8>>>> {
    const ID: &str = "0193f9c0-0000-7000-8000-000000000001";
    let method = *from.choose(&["GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"])?;
    let place = match from.int_in_range(0..=6)? {
        0 => "/api/agents/a/chat".to_owned(),
        1 => "/api/agents/a/sessions".to_owned(),
        2 => format!("/api/agents/a/sessions/{ID}"),
        3 => format!("/api/agents/a/sessions/{ID}/events"),
        4 => format!("/api/agents/{}/sessions", <&str>::arbitrary(from)?),
        5 => format!("/api/agents/a/sessions/{}/events", <&str>::arbitrary(from)?),
        _ => format!("/{}", <&str>::arbitrary(from)?),
    };
    let query = <&str>::arbitrary(from)?;
    let mut request = Request::builder().method(method).uri(format!("{place}?{query}"));
    request = request.header(header::HOST, "localhost");
    if from.ratio(7, 8)? {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if from.ratio(1, 4)? {
        request = request.header("last-event-id", <&[u8]>::arbitrary(from)?);
    }
    Ok(request.body(from.bytes(from.len())?.to_vec()).ok())
}

/// The first byte says which RPC, by its number among the descriptors, or HTTP.
pub fn check(data: &[u8]) {
    thread_local!(static HOUSE: House = House::new());
    let Some((first, rest)) = data.split_first() else { return };
    HOUSE.with(|house| match house.rpcs.get(usize::from(*first) % (house.rpcs.len() + 8)) {
        Some(rpc) => house.rpc(rpc, rest),
        None => {
            if let Ok(Some(request)) = request(&mut Unstructured::new(rest)) {
                house.http(request);
            }
        }
    });
}
