//! The channel of a turn's events to its caller. It holds few events: the turn waits for a slow
//! reader.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
};

use anneal_core::limits::CONTEXT_PIECE_BYTES;
use anneal_proto::v1 as pb;
use futures::{Stream, stream};
use pb::chat_response::Event;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::request::OnDisconnect;
use crate::failure::Failure;

/// The stream of events that the caller reads.
pub(crate) type Events = Pin<Box<dyn Stream<Item = Result<pb::ChatResponse, Status>> + Send>>;

/// Most events that wait for a slow reader.
const MAX_WAITING_EVENTS: usize = 16;

/// The turn's half of the channel.
pub(super) struct EventSender {
    sender: mpsc::Sender<pb::ChatResponse>,
    on_disconnect: OnDisconnect,
    /// Whether a piece of an answer was sent.
    has_shown: AtomicBool,
}

/// The caller has disconnected.
#[derive(Debug)]
pub(super) struct CallerGone;

/// Sends the last event of a turn, or its failure. It is a separate channel, so that the end of a
/// turn never waits for a slow reader.
pub(super) type FinalEventSender = oneshot::Sender<Result<pb::ChatResponse, Status>>;

/// Creates the channel of one turn. The stream owns `kept_alive` until all events have been read or
/// the stream is dropped. With [`OnDisconnect::Finish`] the events of a caller that has gone are
/// discarded.
pub(super) fn channel(
    on_disconnect: OnDisconnect,
    kept_alive: impl Send + 'static,
) -> (EventSender, FinalEventSender, Events) {
    let (sender, events) = mpsc::channel(MAX_WAITING_EVENTS);
    let (final_event_sender, final_event_receiver) = oneshot::channel();
    let events = stream::unfold(
        (events, Some(final_event_receiver), kept_alive),
        async |(mut events, mut final_event_receiver, kept_alive)| {
            if let Some(event) = events.recv().await {
                return Some((Ok(event), (events, final_event_receiver, kept_alive)));
            }
            let end = final_event_receiver
                .take()?
                .await
                .unwrap_or_else(|_| Err(Failure::Panicked.into()));
            Some((end, (events, None, kept_alive)))
        },
    );
    let sender = EventSender {
        sender,
        on_disconnect,
        has_shown: AtomicBool::new(false),
    };
    (sender, final_event_sender, Box::pin(events))
}

impl EventSender {
    /// Sends an event and waits for a slow reader. Texts are sent in pieces that fit every client's
    /// message limit.
    pub(super) async fn send(&self, event: Event) -> Result<(), CallerGone> {
        if matches!(
            event,
            Event::TextDelta(_)
                | Event::ReasoningDelta(_)
                | Event::ReasoningEnd(_)
                | Event::ToolCall(_)
        ) {
            self.has_shown.store(true, Ordering::Relaxed);
        }
        match event {
            Event::TextDelta(text) => self.send_pieces(&text, Event::TextDelta).await,
            Event::ReasoningDelta(text) => self.send_pieces(&text, Event::ReasoningDelta).await,
            event => self.send_whole(event).await,
        }
    }

    async fn send_pieces(&self, text: &str, event: fn(String) -> Event) -> Result<(), CallerGone> {
        for piece in pieces(text) {
            self.send_whole(event(piece.to_owned())).await?;
        }
        Ok(())
    }

    async fn send_whole(&self, event: Event) -> Result<(), CallerGone> {
        let sent = self.sender.send(pb::ChatResponse { event: Some(event) });
        match (sent.await, self.on_disconnect) {
            (Err(_), OnDisconnect::Stop | OnDisconnect::StopAndKeep) => Err(CallerGone),
            (Ok(()), _) | (Err(_), OnDisconnect::Finish) => Ok(()),
        }
    }

    /// Returns when the caller has disconnected, if that ends the turn.
    pub(super) async fn wait_for_disconnect(&self) {
        if self.on_disconnect == OnDisconnect::Finish {
            return std::future::pending().await;
        }
        self.sender.closed().await;
    }

    /// Whether the caller was sent a piece of an answer.
    pub(super) fn has_shown(&self) -> bool {
        self.has_shown.load(Ordering::Relaxed)
    }
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(CONTEXT_PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
