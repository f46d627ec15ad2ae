//! Chunks as server-sent events. The last event is `[DONE]`, or an error object if the turn fails.

use std::collections::VecDeque;

use anneal_proto::v1::chat_response::Event;
use axum::response::{Response, sse::Event as Frame};
use futures::stream;
use serde_json::json;

use super::{answer::AnswerEvents, chunks::Chunks, completion::Identity};
use crate::http::{openai::errors::ApiError, sse};

/// Streams the answer. Fails if the turn fails before the model begins to answer.
pub(super) async fn respond(
    mut events: AnswerEvents,
    mut identity: Identity,
    includes_usage: bool,
) -> Result<Response, ApiError> {
    if events.is_replay() {
        // Each chunk names the model, which may be another one than the request names.
        events.wait_for_end().await?;
        if let Some(done) = events.known_end() {
            identity = identity.with_model_of(done);
        }
    } else {
        events.wait_for_model().await?;
    }
    let chunks = Chunks::new(identity, includes_usage);
    let frames = ChunkStream {
        events,
        frames: VecDeque::from([chunks.first().to_string()]),
        chunks,
        has_ended: false,
    };
    Ok(sse::response(stream::unfold(frames, |mut frames| async {
        let frame = frames.next().await?;
        Some((Ok(Frame::default().data(frame)), frames))
    })))
}

/// The chunks of one answer, as they are sent.
struct ChunkStream {
    events: AnswerEvents,
    chunks: Chunks,
    /// What was not sent yet.
    frames: VecDeque<String>,
    has_ended: bool,
}

impl ChunkStream {
    /// The next frame. None: the last was returned before.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            if self.has_ended {
                return None;
            }
            let event = self.events.next().await;
            let is_last = matches!(event, Ok(Event::Done(_)));
            match event.and_then(|event| self.chunks.push(event)) {
                Ok(chunks) => {
                    let chunks = chunks.iter().map(ToString::to_string);
                    self.frames.extend(chunks);
                    if is_last {
                        self.frames.push_back("[DONE]".to_owned());
                    }
                    self.has_ended = is_last;
                }
                Err(error) => {
                    let error = json!({"error": error.object()});
                    self.frames.push_back(error.to_string());
                    self.has_ended = true;
                }
            }
        }
    }
}
