//! A case of the catalogue of the doors of other protocols: a request, and its expected answer in
//! the shape of the door.

use anneal_testkit::{HttpClient, HttpResponse};
use serde_json::Value;

use crate::hostile::http::JSON;

/// A case of the catalogue of the doors.
pub(crate) struct DoorCase {
    pub(crate) name: String,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) expected: Expected,
}

/// The expected answer.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// The request is answered.
    Answered,
    /// The error object of OpenAI's protocol: its status, parameter and code. Empty: null.
    Error(u16, String, &'static str),
    /// A sentence with these words, as the AI SDK shows it.
    Sentence(u16, &'static str),
}

/// Refused with 400, for this parameter.
pub(crate) fn refused(param: impl Into<String>, code: &'static str) -> Expected {
    Expected::Error(400, param.into(), code)
}

/// Refused with 404.
pub(crate) fn missing() -> Expected {
    Expected::Error(404, String::new(), "")
}

/// A POST of this body.
pub(crate) fn post(name: &str, path: &str, body: &Value, expected: Expected) -> DoorCase {
    post_bytes(name, path, JSON, body.to_string(), expected)
}

/// A POST of these bytes with this content type; empty: none.
pub(crate) fn post_bytes(
    name: &str,
    path: &str,
    content_type: &str,
    body: impl Into<Vec<u8>>,
    expected: Expected,
) -> DoorCase {
    DoorCase {
        name: name.into(),
        method: "POST",
        path: path.into(),
        headers: vec![("content-type", content_type.as_bytes().to_vec())],
        body: body.into(),
        expected,
    }
}

/// A request without a body.
pub(crate) fn request(
    name: &str,
    method: &'static str,
    path: &str,
    expected: Expected,
) -> DoorCase {
    DoorCase {
        name: name.into(),
        method,
        path: path.into(),
        headers: Vec::new(),
        body: Vec::new(),
        expected,
    }
}

/// Bodies that are no JSON object of an acceptable size, for this path of OpenAI's protocol. `valid`
/// is a body that would be accepted.
pub(crate) fn broken_bodies(path: &str, valid: &Value) -> Vec<DoorCase> {
    let valid = valid.to_string();
    let no_json = || Expected::Error(400, String::new(), "invalid_json");
    let no_object = || refused("body", "invalid_type");
    let unsupported = || Expected::Error(415, String::new(), "");
    let json = |name: &str, body: Vec<u8>, expected| post_bytes(name, path, JSON, body, expected);
    let coded = DoorCase {
        headers: vec![
            ("content-type", JSON.into()),
            ("content-encoding", b"gzip".to_vec()),
        ],
        ..json("a compressed body", valid.clone().into(), unsupported())
    };
    vec![
        post_bytes("text", path, "text/plain", valid.clone(), unsupported()),
        post_bytes("no type", path, "", valid.clone(), unsupported()),
        post_bytes(
            "a form",
            path,
            "multipart/form-data; boundary=x",
            valid.clone(),
            unsupported(),
        ),
        coded,
        json("an open brace", b"{".to_vec(), no_json()),
        json("a list", b"[]".to_vec(), no_object()),
        json("a text", b"\"input\"".to_vec(), no_object()),
        json("null", b"null".to_vec(), no_object()),
        json("two bodies", format!("{valid} {{}}").into(), no_json()),
        json(
            "a byte order mark",
            format!("\u{feff}{valid}").into(),
            no_json(),
        ),
        json("not UTF-8", b"{\"x\":\"\xff\"}".to_vec(), no_json()),
        json(
            "half a surrogate pair",
            b"{\"x\":\"\\ud800\"}".to_vec(),
            no_json(),
        ),
        json("a raw NUL", b"{\"x\":\"\0\"}".to_vec(), no_json()),
        json("100,000 brackets", "[".repeat(100_000).into(), no_json()),
        json(
            "100,000 levels",
            format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000)).into(),
            no_json(),
        ),
        json(
            "a body above 4 MiB",
            format!("{{\"x\":\"{}\"}}", "x".repeat(4 << 20)).into(),
            Expected::Error(413, "body".into(), "limit_exceeded"),
        ),
        json(
            "300,000 values",
            format!("{{\"x\":[{}0]}}", "0,".repeat(300_000)).into(),
            refused("body", "invalid_value"),
        ),
        request(
            "no method of this path",
            "PATCH",
            path,
            Expected::Error(405, String::new(), ""),
        ),
    ]
}

impl DoorCase {
    /// Sends the request. Err: how the answer differs from the expected one, or from the shape of
    /// the door.
    pub(crate) async fn run(&self, web: &HttpClient) -> Result<(), String> {
        let mut request = web.request(self.method, &self.path).body(self.body.clone());
        // A header with an empty value is not sent.
        for (name, value) in self.headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, value.as_slice());
        }
        let answer = HttpResponse::send(request).await;
        let differs = match &self.expected {
            Expected::Answered => (answer.status >= 300).then(|| "an answer".to_owned()),
            Expected::Sentence(status, words) => sentence_differs(&answer, *status, words),
            Expected::Error(status, param, code) => error_differs(&answer, *status, param, code),
        };
        let Some(differs) = differs else {
            return Ok(());
        };
        let beginning: String = answer.text.chars().take(400).collect();
        Err(format!(
            "{} {:.80}, {}: not {differs}, but {}: {beginning}",
            self.method, self.path, self.name, answer.status
        ))
    }

    /// Whether the request is refused.
    pub(crate) fn is_refused(&self) -> bool {
        !matches!(self.expected, Expected::Answered)
    }
}

/// Most bytes of a refusal. Its texts come from the request.
pub(crate) const MAX_REFUSAL_BYTES: usize = 2_048;

/// How the answer differs from this error. None: it does not.
fn error_differs(answer: &HttpResponse, status: u16, param: &str, code: &str) -> Option<String> {
    if let Some(broken) = shape_differs(answer) {
        return Some(broken);
    }
    let error = &answer.json_or_null()["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    if (answer.status, text("param"), text("code")) != (status, param, code) {
        return Some(format!("{status} {param} {code}"));
    }
    (!text("message").contains(param)).then(|| format!("a message that names {param}"))
}

/// How the answer differs from the error object. None: it does not.
pub(crate) fn shape_differs(answer: &HttpResponse) -> Option<String> {
    let body = answer.json_or_null();
    let error = body["error"].as_object();
    let keys: Vec<&str> = error
        .into_iter()
        .flat_map(|error| error.keys().map(String::as_str))
        .collect();
    let has_keys = keys.len() == 4
        && ["message", "type", "param", "code"]
            .iter()
            .all(|key| keys.contains(key));
    let has_message = body["error"]["message"]
        .as_str()
        .is_some_and(|message| !message.is_empty());
    let is_short = answer.text.len() <= MAX_REFUSAL_BYTES;
    let has_headers = answer.header("x-request-id").starts_with("req_")
        && answer.header("content-type") == "application/json";
    (!has_keys || !has_message || !is_short || !has_headers)
        .then(|| format!("an error object, of {} bytes", answer.text.len()))
}

/// How the answer differs from a sentence with these words. None: it does not.
fn sentence_differs(answer: &HttpResponse, status: u16, words: &str) -> Option<String> {
    let is_expected = answer.status == status
        && answer.text.contains(words)
        && answer.text.len() <= MAX_REFUSAL_BYTES
        && answer.header("content-type").starts_with("text/plain");
    (!is_expected).then(|| format!("{status} with a sentence that has '{words}'"))
}
