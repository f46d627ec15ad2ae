//! The same over the HTTP door, where it has that route, and what only HTTP can send.

use anneal_tests::{Answered, Web};
use serde_json::{Value, json};

/// A line of the catalogue.
pub(crate) struct Asked {
    pub(crate) name: String,
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    /// HTTP status, reason, field; the status alone where it is an answer.
    wanted: (u16, &'static str, &'static str),
}

const CHAT: &str = "/api/agents/a/chat";
const MISSING: &str = "/api/agents/a/sessions/00000000-0000-4000-8000-000000000000";
const SESSIONS: &str = "/api/agents/a/sessions";
const JSON: &str = "application/json";
/// What cannot be read.
const UNREAD: (u16, &str, &str) = (400, "MALFORMED_REQUEST", "");

const fn invalid(field: &'static str) -> (u16, &'static str, &'static str) {
    (400, "INVALID_FIELD", field)
}

const fn limit(field: &'static str) -> (u16, &'static str, &'static str) {
    (400, "LIMIT_EXCEEDED", field)
}

fn posted(name: &str, kind: &str, body: impl Into<Vec<u8>>, wanted: (u16, &'static str, &'static str)) -> Asked {
    let headers = vec![("content-type", kind.as_bytes().to_vec())];
    Asked { name: name.into(), method: "POST", path: CHAT.into(), headers, body: body.into(), wanted }
}

fn said(name: &str, body: &Value, wanted: (u16, &'static str, &'static str)) -> Asked {
    posted(name, JSON, body.to_string(), wanted)
}

fn get(name: &str, path: &str, wanted: (u16, &'static str, &'static str)) -> Asked {
    Asked { name: name.into(), method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new(), wanted }
}

fn patched(name: &str, body: &Value, wanted: (u16, &'static str, &'static str)) -> Asked {
    Asked { method: "PATCH", path: MISSING.into(), ..said(name, body, wanted) }
}

/// Bodies that are no JSON object.
pub(crate) fn bodies() -> Vec<Asked> {
    let hi = r#"{"message":"hi"}"#;
    let no_json = (415, "MALFORMED_REQUEST", "");
    vec![
        posted("text", "text/plain", hi, no_json),
        posted("a form", "application/x-www-form-urlencoded", hi, no_json),
        posted("a form in parts", "multipart/form-data; boundary=x", hi, no_json),
        posted("nearly JSON", "application/jsonp", hi, no_json),
        posted("no type", "", hi, no_json),
        posted("no body", JSON, "", invalid("message")),
        posted("an open brace", JSON, "{", UNREAD),
        posted("half a word", JSON, "nul", UNREAD),
        posted("a list", JSON, "[\"hi\"]", UNREAD),
        posted("a text", JSON, "\"hi\"", UNREAD),
        posted("two bodies", JSON, "{\"message\":\"hi\"} {}", UNREAD),
        posted("half a pair", JSON, "{\"message\":\"\\ud800\"}", UNREAD),
        posted("a mark of bytes", JSON, "\u{feff}{}", UNREAD),
        posted("not UTF-8", JSON, b"{\"message\":\"\xff\"}".to_vec(), UNREAD),
        posted("a raw NUL", JSON, "{\"message\":\"\0\"}", UNREAD),
        posted("100,000 lists", JSON, "[".repeat(100_000), UNREAD),
        posted("100,000 levels", JSON, format!("{{\"message\":{}", "[".repeat(100_000)), invalid("message")),
        posted("100,000 levels of nobody", JSON, format!("{{\"x\":{}", "[".repeat(100_000)), UNREAD),
        posted("1e400 tokens", JSON, "{\"message\":\"x\",\"maxOutputTokens\":1e400}", UNREAD),
        posted("4 MiB", JSON, format!("{{\"message\":\"{}\"}}", "x".repeat(4 << 20)), (413, "LIMIT_EXCEEDED", "body")),
        posted("a name of 1 MB", JSON, format!("{{\"{}\":1}}", "x".repeat(1 << 20)), invalid("message")),
        posted("a message twice", JSON, "{\"message\":\"x\",\"message\":\"y\"}", UNREAD),
    ]
}

/// Fields.
pub(crate) fn fields() -> Vec<Asked> {
    let long = "x".repeat(129);
    vec![
        said("a number for words", &json!({"message": 7}), invalid("message")),
        said("no words", &json!({"message": ""}), invalid("message")),
        said("a text for pictures", &json!({"message": "x", "images": "http://x.example/a.png"}), invalid("images")),
        said(
            "a number for a picture",
            &json!({"message": "x", "images": ["https://x.example/a", 1]}),
            invalid("images[1]"),
        ),
        said(
            "a script for a picture",
            &json!({"message": "x", "images": ["javascript:alert(1)"]}),
            invalid("images[0]"),
        ),
        said("a file for a picture", &json!({"message": "x", "images": ["file:///etc/passwd"]}), invalid("images[0]")),
        said("NUL in a picture", &json!({"message": "x", "images": ["https://x.example/\u{0}"]}), invalid("images[0]")),
        said("300 pictures", &json!({"message": "x", "images": vec!["https://x.example/a"; 300]}), limit("images")),
        said("-1 tokens", &json!({"message": "x", "maxOutputTokens": -1}), invalid("maxOutputTokens")),
        said("half a token", &json!({"message": "x", "maxOutputTokens": 0.5}), invalid("maxOutputTokens")),
        posted(
            "2^64 tokens",
            JSON,
            "{\"message\":\"x\",\"maxOutputTokens\":18446744073709551616}",
            invalid("maxOutputTokens"),
        ),
        said("a path for a session", &json!({"message": "x", "sessionId": "../../etc/passwd"}), invalid("sessionId")),
        said("NUL for a session", &json!({"message": "x", "sessionId": "\u{0}"}), invalid("sessionId")),
        said("NUL for a request", &json!({"message": "x", "requestId": "\u{0}"}), invalid("requestId")),
        said("a request of 129 bytes", &json!({"message": "x", "requestId": long}), limit("requestId")),
        said("a model of 129 bytes", &json!({"message": "x", "model": long}), limit("model")),
        said("NUL for a model", &json!({"message": "x", "model": "\u{0}"}), invalid("model")),
        said("NUL for a user", &json!({"message": "x", "userId": "\u{0}"}), invalid("userId")),
        patched("nothing to change", &json!({}), invalid("body")),
        patched("no such status", &json!({"status": "gone"}), invalid("status")),
        patched("a number for a status", &json!({"status": 99}), UNREAD),
        patched("a list for labels", &json!({"metadata": []}), invalid("metadata")),
        patched("a number for a label", &json!({"metadata": {"k": 1}}), invalid("metadata.k")),
    ]
}

/// Paths, queries and headers.
pub(crate) fn paths() -> Vec<Asked> {
    let long = format!("/api/agents/{}/sessions", "x".repeat(129));
    let query = |name: &str, query: &str, wanted| get(name, &format!("{SESSIONS}?{query}"), wanted);
    let headed = |name: &str, header, value: &[u8], wanted| {
        let asked = posted(name, JSON, "{\"message\":\"x\"}", wanted);
        Asked { headers: [asked.headers, vec![(header, value.to_vec())]].concat(), ..asked }
    };
    let etag = |name: &str, value: &[u8]| {
        let asked = patched(name, &json!({"title": "x"}), invalid("If-Match"));
        Asked { headers: [asked.headers, vec![("if-match", value.to_vec())]].concat(), ..asked }
    };
    vec![
        get("an agent of 129 bytes", &long, limit("agentId")),
        get("no agent", "/api/agents//sessions", invalid("agentId")),
        get("NUL in an agent", "/api/agents/a%00b/sessions", invalid("agentId")),
        get("an agent that is not UTF-8", "/api/agents/%ff/sessions", UNREAD),
        get("half a pair for an agent", "/api/agents/%ed%a0%80/sessions", UNREAD),
        get("an agent of another script", "/api/agents/%E4%B8%96%2Fx/sessions", (200, "", "")),
        get("a session that is none", "/api/agents/a/sessions/not-a-uuid", invalid("sessionId")),
        get("a session that is a path", "/api/agents/a/sessions/..%2f..%2fetc%2fpasswd", invalid("sessionId")),
        get("a session that is not there", MISSING, (404, "CONVERSATION_NOT_FOUND", "")),
        query("NUL for a user", "userId=%00", invalid("userId")),
        query("a user that is not UTF-8", "userId=%ff", (200, "", "")),
        query("a page of -1", "pageSize=-1", invalid("pageSize")),
        query("a page of words", "pageSize=many", invalid("pageSize")),
        query("a page above i32", "pageSize=2147483648", invalid("pageSize")),
        query("two sizes", "pageSize=1&pageSize=2", UNREAD),
        query("a token that is none", "pageToken=%22", invalid("pageToken")),
        query("no such status", "status=99", invalid("status")),
        query("8,000 bytes of a query", &format!("x={}", "y".repeat(8_000)), (200, "", "")),
        query("60,000 bytes of a query", &format!("x={}", "y".repeat(60_000)), (431, "", "")),
        headed("a place that is none", "last-event-id", b"0", invalid("Last-Event-ID")),
        headed("a place of 0xff", "last-event-id", b"\xff\xfe", invalid("Last-Event-ID")),
        headed("a place in base64", "last-event-id", b"AAAAAAAAAAAAAAAAAAAA", invalid("Last-Event-ID")),
        etag("an etag without quotes", b"1"),
        etag("an etag of 0xff", b"\"\xff\""),
        etag("two etags", b"\"1\", \"2\""),
    ]
}

impl Asked {
    /// Asks; what is not as it should be.
    pub(crate) async fn play(&self, web: &Web) -> Result<(), String> {
        let mut request = web.request(self.method, &self.path).body(self.body.clone());
        for (name, value) in self.headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, value.as_slice());
        }
        let answered = Answered::to(request).await;
        let problem = answered.json_or_null();
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let said = (answered.status, text("reason"), text("field"));
        let wanted = (self.wanted.0, self.wanted.1.to_owned(), self.wanted.2.to_owned());
        if said == wanted {
            return Ok(());
        }
        let beginning: String = answered.text.chars().take(300).collect();
        Err(format!(
            "{} {}, {}: not {wanted:?}, but {said:?}: {beginning}",
            self.method,
            &self.path[..self.path.len().min(60)],
            self.name
        ))
    }
}
