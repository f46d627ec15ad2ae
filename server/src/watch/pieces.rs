//! The answers of watches on their way into the connection: in the pieces in which every answer goes there
//! ([`traffic`](crate::traffic)), but cut here already, so that what its reader does not take can be let go while the watch
//! goes on.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use tonic::{Status, body::Body};

use super::outlet::Way;
use crate::traffic::PIECE;

/// What a watch's response carries, so that its body is sent in pieces.
#[derive(Clone)]
pub(super) struct InPieces(pub(super) Arc<Way>);

/// A body that is handed on in pieces.
struct Pieces {
    body: Body,
    way: Arc<Way>,
}

/// Has the answer of a watch sent in pieces; leaves every other answer alone.
pub(crate) fn in_pieces(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<InPieces>() {
        Some(InPieces(way)) => response.map(|body| Body::new(Pieces { body, way })),
        None => response,
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(piece) = self.way.next_piece(PIECE) {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let cut = frame.map(|frame| frame.map(|frame| frame.map_data(|whole| self.way.first_piece(whole, PIECE))));
        Poll::Ready(cut)
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
