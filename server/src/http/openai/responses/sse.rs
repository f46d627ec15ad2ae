//! The events of a response as server-sent events: each is one frame, with its type as its name.
//! The last frame is `[DONE]`.

use axum::response::{Response, sse::Event};
use futures::stream;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::run::RunningResponse;
use crate::{
    auth::Proof,
    failure::Failure,
    http::{openai::errors::ApiError, sse},
    limits::concurrency::Permit,
};

/// Streams the events, as long as the client's credential is valid.
pub(super) fn stream_events(
    running: RunningResponse,
    permit: Permit,
    proof: Option<Proof>,
) -> Response {
    let credential_check = proof.map(|proof| {
        let check = async move { proof.wait_until_invalid().await };
        AbortOnDropHandle::new(tokio::spawn(check))
    });
    let events = EventStream {
        running: Some(running),
        last_position: 0,
        credential_check,
        is_done: false,
        _permit: permit,
    };
    sse::response(stream::unfold(events, |mut events| async {
        let frame = events.next_frame().await?;
        Some((Ok(frame), events))
    }))
}

/// The events of a response for one client.
struct EventStream {
    /// None: no more events come.
    running: Option<RunningResponse>,
    /// The number of the last event.
    last_position: u64,
    /// Ends when the credential becomes invalid. It is a task of its own, because this stream is
    /// not polled while the client does not read. None: callers need no credential.
    credential_check: Option<AbortOnDropHandle<Failure>>,
    /// Whether `[DONE]` was sent.
    is_done: bool,
    _permit: Permit,
}

impl EventStream {
    async fn next_frame(&mut self) -> Option<Event> {
        let Some(event) = self.next_event().await else {
            self.running = None;
            let is_first = !std::mem::replace(&mut self.is_done, true);
            return is_first.then(|| Event::default().data("[DONE]"));
        };
        if let Some(position) = event["sequence_number"].as_u64() {
            self.last_position = position;
        }
        let kind = event["type"].as_str().unwrap_or("error").to_owned();
        Some(Event::default().event(kind).data(event.to_string()))
    }

    /// The next event. The one for an invalid credential is the last.
    async fn next_event(&mut self) -> Option<Value> {
        let running = self.running.as_mut()?;
        let credential_ends = async {
            match &mut self.credential_check {
                Some(check) => check.await.unwrap_or(Failure::Panicked),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            failure = credential_ends => {
                self.running = None;
                let error = ApiError::from(failure).object();
                Some(json!({
                    "type": "error",
                    "sequence_number": self.last_position + 1,
                    "code": error["code"],
                    "message": error["message"],
                    "param": error["param"],
                    "error": error,
                }))
            }
            event = running.next() => event,
        }
    }
}
