//! The cases of the catalogue over HTTP: some are like those over gRPC, and some are possible only
//! over HTTP.

use anneal_testkit::{HttpClient, HttpResponse};
use serde_json::{Value, json};

/// A case of the catalogue over HTTP.
pub(crate) struct HttpCase {
    pub(crate) name: String,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// HTTP status, reason and field. Reason and field are empty if the answer has none.
    pub(crate) expected: (u16, &'static str, &'static str),
}

const CHAT: &str = "/api/agents/a/chat";
/// The path of a session that does not exist.
pub(crate) const MISSING: &str = "/api/agents/a/sessions/00000000-0000-4000-8000-000000000000";
const SESSIONS: &str = "/api/agents/a/sessions";
pub(crate) const JSON: &str = "application/json";
/// A request that cannot be parsed.
pub(crate) const MALFORMED: (u16, &str, &str) = (400, "MALFORMED_REQUEST", "");

/// The name of an unknown field of 1 MiB of `x` in its refusal.
const TRUNCATED_NAME: &str = concat!(
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…",
);

pub(crate) const fn invalid(field: &'static str) -> (u16, &'static str, &'static str) {
    (400, "INVALID_FIELD", field)
}

pub(crate) const fn limit(field: &'static str) -> (u16, &'static str, &'static str) {
    (400, "LIMIT_EXCEEDED", field)
}

/// A POST of this body to [`CHAT`], with this content type.
pub(crate) fn post(
    name: &str,
    content_type: &str,
    body: impl Into<Vec<u8>>,
    expected: (u16, &'static str, &'static str),
) -> HttpCase {
    let headers = vec![("content-type", content_type.as_bytes().to_vec())];
    HttpCase {
        name: name.into(),
        method: "POST",
        path: CHAT.into(),
        headers,
        body: body.into(),
        expected,
    }
}

pub(crate) fn post_json(
    name: &str,
    body: &Value,
    expected: (u16, &'static str, &'static str),
) -> HttpCase {
    post(name, JSON, body.to_string(), expected)
}

pub(crate) fn get(name: &str, path: &str, expected: (u16, &'static str, &'static str)) -> HttpCase {
    HttpCase {
        name: name.into(),
        method: "GET",
        path: path.into(),
        headers: Vec::new(),
        body: Vec::new(),
        expected,
    }
}

fn patch(name: &str, body: &Value, expected: (u16, &'static str, &'static str)) -> HttpCase {
    HttpCase {
        method: "PATCH",
        path: MISSING.into(),
        ..post_json(name, body, expected)
    }
}

/// Other content types, bodies that are not a JSON object, and JSON with odd or too many bytes.
pub(crate) fn bodies() -> Vec<HttpCase> {
    let hi = r#"{"message":"hi"}"#;
    let unsupported = (415, "MALFORMED_REQUEST", "");
    vec![
        post("text", "text/plain", hi, unsupported),
        post(
            "a form",
            "application/x-www-form-urlencoded",
            hi,
            unsupported,
        ),
        post(
            "a form in parts",
            "multipart/form-data; boundary=x",
            hi,
            unsupported,
        ),
        post("JSONP", "application/jsonp", hi, unsupported),
        post("no type", "", hi, unsupported),
        post("no body", JSON, "", invalid("message")),
        post("an open brace", JSON, "{", MALFORMED),
        post("half a word", JSON, "nul", MALFORMED),
        post("a list", JSON, "[\"hi\"]", MALFORMED),
        post("a text", JSON, "\"hi\"", MALFORMED),
        post("two bodies", JSON, "{\"message\":\"hi\"} {}", MALFORMED),
        post(
            "half a surrogate pair",
            JSON,
            "{\"message\":\"\\ud800\"}",
            MALFORMED,
        ),
        post("a byte order mark", JSON, "\u{feff}{}", MALFORMED),
        post(
            "not UTF-8",
            JSON,
            b"{\"message\":\"\xff\"}".to_vec(),
            MALFORMED,
        ),
        post("a raw NUL", JSON, "{\"message\":\"\0\"}", MALFORMED),
        post(
            "100,000 opening brackets",
            JSON,
            "[".repeat(100_000),
            MALFORMED,
        ),
        post(
            "100,000 levels",
            JSON,
            format!("{{\"message\":{}", "[".repeat(100_000)),
            invalid("message"),
        ),
        post(
            "100,000 levels in an unknown field",
            JSON,
            format!("{{\"x\":{}", "[".repeat(100_000)),
            invalid("x"),
        ),
        post(
            "1e400 tokens",
            JSON,
            "{\"message\":\"x\",\"maxOutputTokens\":1e400}",
            invalid("maxOutputTokens"),
        ),
        post(
            "a body above 4 MiB",
            JSON,
            format!("{{\"message\":\"{}\"}}", "x".repeat(4 << 20)),
            (413, "LIMIT_EXCEEDED", "body"),
        ),
        post(
            "a field name of 1 MiB",
            JSON,
            format!("{{\"{}\":1}}", "x".repeat(1 << 20)),
            invalid(TRUNCATED_NAME),
        ),
        post(
            "a message twice",
            JSON,
            "{\"message\":\"x\",\"message\":\"y\"}",
            MALFORMED,
        ),
    ]
}

/// Fields of changes of a session that does not exist.
pub(crate) fn patches() -> Vec<HttpCase> {
    vec![
        patch("nothing to change", &json!({}), invalid("body")),
        patch(
            "no such status",
            &json!({"status": "gone"}),
            invalid("status"),
        ),
        patch(
            "a number for a status",
            &json!({"status": 99}),
            invalid("status"),
        ),
        patch(
            "a list for labels",
            &json!({"metadata": []}),
            invalid("metadata"),
        ),
        patch(
            "a number for a label",
            &json!({"metadata": {"k": 1}}),
            invalid("metadata.k"),
        ),
        patch(
            "a list for options",
            &json!({"chatOptions": []}),
            invalid("chatOptions"),
        ),
        patch(
            "an unknown option",
            &json!({"chatOptions": {"message": "x"}}),
            invalid("chatOptions.message"),
        ),
        patch(
            "a text for a tool of a session",
            &json!({"chatOptions": {"tools": ["look"]}}),
            invalid("chatOptions.tools[0]"),
        ),
        patch(
            "no choice of a tool of a session",
            &json!({"chatOptions": {"toolChoice": {}}}),
            invalid("chatOptions.toolChoice"),
        ),
        patch(
            "options of a session that does not exist",
            &json!({"chatOptions": {"tools": vec![json!({"name": "a"}); 300]}}),
            (404, "CONVERSATION_NOT_FOUND", ""),
        ),
    ]
}

/// Paths, queries and headers.
pub(crate) fn paths() -> Vec<HttpCase> {
    let long = format!("/api/agents/{}/sessions", "x".repeat(129));
    let query =
        |name: &str, query: &str, expected| get(name, &format!("{SESSIONS}?{query}"), expected);
    let with_header = |name: &str, header, value: &[u8], expected| {
        let case = post(name, JSON, "{\"message\":\"x\"}", expected);
        HttpCase {
            headers: [case.headers, vec![(header, value.to_vec())]].concat(),
            ..case
        }
    };
    let etag = |name: &str, value: &[u8]| {
        let case = patch(name, &json!({"title": "x"}), invalid("If-Match"));
        HttpCase {
            headers: [case.headers, vec![("if-match", value.to_vec())]].concat(),
            ..case
        }
    };
    vec![
        get("an agent of 129 bytes", &long, limit("agentId")),
        get("no agent", "/api/agents//sessions", invalid("agentId")),
        get(
            "NUL in an agent",
            "/api/agents/a%00b/sessions",
            invalid("agentId"),
        ),
        get(
            "an agent that is not UTF-8",
            "/api/agents/%ff/sessions",
            MALFORMED,
        ),
        get(
            "half a surrogate pair for an agent",
            "/api/agents/%ed%a0%80/sessions",
            MALFORMED,
        ),
        get(
            "an agent of another script",
            "/api/agents/%E4%B8%96%2Fx/sessions",
            (200, "", ""),
        ),
        get(
            "a session that is not a UUID",
            "/api/agents/a/sessions/not-a-uuid",
            invalid("sessionId"),
        ),
        get(
            "a session that is a path",
            "/api/agents/a/sessions/..%2f..%2fetc%2fpasswd",
            invalid("sessionId"),
        ),
        get(
            "an unknown session",
            MISSING,
            (404, "CONVERSATION_NOT_FOUND", ""),
        ),
        query("NUL for a user", "userId=%00", invalid("userId")),
        query("a user that is not UTF-8", "userId=%ff", (200, "", "")),
        query("a page size of -1", "pageSize=-1", invalid("pageSize")),
        query("a page size in words", "pageSize=many", invalid("pageSize")),
        query(
            "a page size above i32",
            "pageSize=2147483648",
            invalid("pageSize"),
        ),
        query("two page sizes", "pageSize=1&pageSize=2", MALFORMED),
        query("a malformed token", "pageToken=%22", invalid("pageToken")),
        query("no such status", "status=99", invalid("status")),
        query(
            "8,000 bytes of a query",
            &format!("x={}", "y".repeat(8_000)),
            invalid("x"),
        ),
        query(
            "60,000 bytes of a query",
            &format!("x={}", "y".repeat(60_000)),
            (431, "", ""),
        ),
        with_header(
            "a malformed event id",
            "last-event-id",
            b"0",
            invalid("Last-Event-ID"),
        ),
        with_header(
            "an event id of 0xff",
            "last-event-id",
            b"\xff\xfe",
            invalid("Last-Event-ID"),
        ),
        with_header(
            "a forged event id",
            "last-event-id",
            b"AAAAAAAAAAAAAAAAAAAA",
            invalid("Last-Event-ID"),
        ),
        etag("an etag without quotes", b"1"),
        etag("an etag of 0xff", b"\"\xff\""),
        etag("two etags", b"\"1\", \"2\""),
    ]
}

impl HttpCase {
    /// Sends the request. Err: how the answer differs from the expected one.
    pub(crate) async fn run(&self, web: &HttpClient) -> Result<(), String> {
        let mut request = web.request(self.method, &self.path).body(self.body.clone());
        // A header with an empty value is not sent.
        for (name, value) in self.headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, value.as_slice());
        }
        let answered = HttpResponse::send(request).await;
        let problem = answered.json_or_null();
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let actual = (answered.status, text("reason"), text("field"));
        let expected = (
            self.expected.0,
            self.expected.1.to_owned(),
            self.expected.2.to_owned(),
        );
        if actual == expected {
            return Ok(());
        }
        let beginning: String = answered.text.chars().take(300).collect();
        Err(format!(
            "{} {}, {}: not {expected:?}, but {actual:?}: {beginning}",
            self.method,
            &self.path[..self.path.len().min(60)],
            self.name
        ))
    }
}
