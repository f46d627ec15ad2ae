//! Answers that are server-sent events.

use std::time::Duration;

use axum::{
    http::{HeaderName, HeaderValue},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::Stream;

/// The header that says what a reader had last.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Silence after which a comment is sent, so that nobody in between takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// These events as they come.
pub(super) fn answer(events: impl Stream<Item = Result<Event, axum::Error>> + Send + 'static) -> Response {
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // nginx would keep events back until its buffer is full.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
