//! JSON answers.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

/// The name of an enum value in JSON: in lower case and without its prefix. If `prefix` is
/// `STOP_REASON_`, `STOP_REASON_DONE` becomes `done`.
pub(super) fn enum_name(value: &str, prefix: &str) -> String {
    value.trim_start_matches(prefix).to_lowercase()
}

/// A JSON answer that must not be cached.
pub(super) fn response<T: Serialize>(body: &T) -> Response {
    let body =
        serde_json::to_vec(body).expect("answers are strings, numbers, lists and maps of strings");
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, body).into_response()
}
