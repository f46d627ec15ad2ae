//! Answers as server-sent events. What follows a `Last-Event-ID` is decided per endpoint:
//! `resumable_turns/reader.rs` for turns (`resume_point.rs` beside it decodes the id),
//! `usecases/watch/watcher.rs` for watches (`position.rs` decodes the id).

use std::time::Duration;

use axum::{
    http::{HeaderName, HeaderValue},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::Stream;

/// The header with the id of the last event that a reader has received.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A comment is sent after this much silence, so that proxies do not close the connection as idle.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams the events as an answer.
pub(super) fn response(
    events: impl Stream<Item = Result<Event, axum::Error>> + Send + 'static,
) -> Response {
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    // nginx would hold events back until its buffer is full.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
