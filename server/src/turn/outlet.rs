//! The way of a turn's events to its caller. A slow reader slows the turn down: few events wait for it.

use std::pin::Pin;

use anneal_core::limits::CONTEXT_PIECE_BYTES;
use anneal_proto::v1 as pb;
use futures::{Stream, stream};
use pb::chat_response::Event;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::status::Failure;

/// What the caller reads.
pub(crate) type Events = Pin<Box<dyn Stream<Item = Result<pb::ChatResponse, Status>> + Send>>;

/// Events that may wait for a slow reader.
const WAITING: usize = 16;

/// The turn's end of the way.
pub(super) struct Outlet(mpsc::Sender<pb::ChatResponse>);

/// The caller has gone.
#[derive(Debug)]
pub(super) struct Gone;

/// How a turn ends: its last event, or why there is none. It has a way of its own, so that it waits for nobody.
pub(super) type Last = oneshot::Sender<Result<pb::ChatResponse, Status>>;

/// A way for the events of one turn; whoever reads them holds this until they are read or given up.
pub(super) fn open(held: impl Send + 'static) -> (Outlet, Last, Events) {
    let (sender, events) = mpsc::channel(WAITING);
    let (last, ending) = oneshot::channel();
    let events = stream::unfold((events, Some(ending), held), async |(mut events, mut ending, held)| {
        if let Some(event) = events.recv().await {
            return Some((Ok(event), (events, ending, held)));
        }
        let end = ending.take()?.await.unwrap_or_else(|_| Err(Failure::Panicked.into()));
        Some((end, (events, None, held)))
    });
    (Outlet(sender), last, Box::pin(events))
}

impl Outlet {
    /// Sends an event, texts in pieces that every client takes; waits for a slow reader.
    pub(super) async fn send(&self, event: Event) -> Result<(), Gone> {
        match event {
            Event::TextDelta(text) => self.send_pieces(&text, Event::TextDelta).await,
            Event::ReasoningDelta(text) => self.send_pieces(&text, Event::ReasoningDelta).await,
            event => self.send_whole(event).await,
        }
    }

    async fn send_pieces(&self, text: &str, event: fn(String) -> Event) -> Result<(), Gone> {
        for piece in pieces(text) {
            self.send_whole(event(piece.to_owned())).await?;
        }
        Ok(())
    }

    async fn send_whole(&self, event: Event) -> Result<(), Gone> {
        self.0.send(pb::ChatResponse { event: Some(event) }).await.map_err(|_| Gone)
    }

    /// Returns once the caller has gone.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(CONTEXT_PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
