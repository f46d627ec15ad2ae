//! Splits the body of a watch's response into pieces of the size in which every answer is sent
//! ([`traffic`](crate::traffic)). The pieces wait in the watch's event channel, which can drop
//! those that a reader does not take.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use tonic::{Status, body::Body};

use super::event_channel::EventChannel;
use crate::traffic::CHUNK_BYTES;

/// A body that is sent in pieces.
struct SplitBodyFrames {
    body: Body,
    channel: Arc<EventChannel>,
}

/// Splits the body of a response that carries the channel of a watch. Other responses are returned
/// unchanged.
pub(crate) fn split_body(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<Arc<EventChannel>>() {
        Some(channel) => response.map(|body| Body::new(SplitBodyFrames { body, channel })),
        None => response,
    }
}

impl http_body::Body for SplitBodyFrames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(piece) = self.channel.next_piece(CHUNK_BYTES) {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let cut = frame.map(|frame| {
            frame.map(|frame| frame.map_data(|whole| self.channel.first_piece(whole, CHUNK_BYTES)))
        });
        Poll::Ready(cut)
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
