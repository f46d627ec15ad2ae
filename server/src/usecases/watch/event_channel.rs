//! The channel of a watch's events to its reader. It holds few events. A reader that takes none for
//! too long is disconnected, and its events are dropped.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use anneal_proto::v1 as pb;
use axum::body::Bytes;
use futures::Stream;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Response, Status};

use super::EventStream;
use crate::{failure::Failure, watch_registry::BudgetPermit};

/// Most events that wait for their reader.
const MAX_WAITING_EVENTS: usize = 16;
/// How long a reader may take no event after its watch has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// The watcher's half of the channel.
pub(super) struct EventSender {
    channel: Arc<EventChannel>,
    /// How long the reader may take no event.
    stall_timeout: Duration,
    disconnected: CancellationToken,
}

/// The reader's half of the channel.
struct Reader {
    channel: Arc<EventChannel>,
    _disconnected: DropGuard,
}

/// The shared state of both halves.
#[derive(Default)]
pub(super) struct EventChannel {
    state: Mutex<ChannelState>,
    /// Notified for each event, and each piece of one, that the reader takes.
    taken: Notify,
}

#[derive(Default)]
struct ChannelState {
    waiting: VecDeque<Waiting>,
    /// The rest of an encoded event whose first pieces are in the connection.
    rest: Bytes,
    /// The permits of the events that were taken last and may still be in the encoder.
    permits: Vec<BudgetPermit>,
    /// The position of the last event that the reader took. Empty: it has taken none.
    position: String,
    /// Why the watch has ended. None before the end, and after the reader has taken the status.
    end: Option<Status>,
    /// Whether the watch has ended.
    is_over: bool,
    reader_waker: Option<Waker>,
}

/// An event that waits for the reader, and its permit.
struct Waiting {
    event: pb::ConversationEvent,
    permit: Option<BudgetPermit>,
}

/// The reader has taken nothing for too long.
#[derive(Debug)]
pub(super) struct ReaderTooSlow;

/// Creates the channel of one watch.
pub(super) fn channel(stall_timeout: Duration) -> (EventSender, Response<EventStream>) {
    let (channel, disconnected) = (Arc::<EventChannel>::default(), CancellationToken::new());
    let reader = Reader {
        channel: Arc::clone(&channel),
        _disconnected: disconnected.clone().drop_guard(),
    };
    let mut stream = Response::new(Box::pin(reader) as EventStream);
    // `split_body` finds the channel in the response.
    stream.extensions_mut().insert(Arc::clone(&channel));
    (
        EventSender {
            channel,
            stall_timeout,
            disconnected,
        },
        stream,
    )
}

impl EventChannel {
    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first piece of an encoded event, of at most `most` bytes, and keeps the rest. An
    /// event that fits is returned whole. A piece is a copy: a slice would keep the whole event in
    /// memory.
    pub(super) fn first_piece(&self, whole: Bytes, most: usize) -> Bytes {
        if whole.len() <= most {
            return whole;
        }
        self.state().rest = whole;
        self.next_piece(most).unwrap_or_default()
    }

    /// Takes the next piece of the event. None: the whole event was taken.
    pub(super) fn next_piece(&self, most: usize) -> Option<Bytes> {
        let mut state = self.state();
        if state.rest.is_empty() {
            return None;
        }
        let bytes = state.rest.len().min(most);
        let piece = Bytes::copy_from_slice(&state.rest.split_to(bytes));
        self.taken.notify_one();
        Some(piece)
    }
}

impl ChannelState {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rest.is_empty()
    }

    fn discard_all(&mut self) {
        self.waiting = VecDeque::new();
        self.rest = Bytes::new();
        self.permits = Vec::new();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.reader_waker.take() {
            waker.wake();
        }
    }
}

impl EventSender {
    /// Sends an event and its permit. Waits while [`MAX_WAITING_EVENTS`] events wait already.
    pub(super) async fn send(
        &self,
        event: pb::ConversationEvent,
        permit: Option<BudgetPermit>,
    ) -> Result<(), ReaderTooSlow> {
        self.wait_until(|state| state.waiting.len() < MAX_WAITING_EVENTS)
            .await?;
        let mut state = self.channel.state();
        state.waiting.push_back(Waiting { event, permit });
        state.wake();
        Ok(())
    }

    /// Returns when the reader has taken every event.
    pub(super) async fn wait_for_reader(&self) -> Result<(), ReaderTooSlow> {
        self.wait_until(ChannelState::is_empty).await
    }

    /// Waits for a condition. Each event or piece that the reader takes restarts the timeout.
    async fn wait_until(&self, holds: impl Fn(&ChannelState) -> bool) -> Result<(), ReaderTooSlow> {
        while !holds(&self.channel.state()) {
            timeout(self.stall_timeout, self.channel.taken.notified())
                .await
                .map_err(|_| ReaderTooSlow)?;
        }
        Ok(())
    }

    /// The position of the last event that the reader took.
    pub(super) fn position(&self) -> String {
        self.channel.state().position.clone()
    }

    /// Ends the watch with this failure, and returns its status code. The reader still gets the
    /// waiting events, unless the failure is that the reader is too slow.
    pub(super) fn end(&self, failure: Failure) -> Code {
        let mut state = self.channel.state();
        if matches!(failure, Failure::WatcherTooSlow { .. }) {
            state.waiting = VecDeque::new();
        }
        let status = Status::from(failure);
        let code = status.code();
        (state.end, state.is_over) = (Some(status), true);
        state.wake();
        code
    }

    /// Waits until the reader has taken the remaining events, at most [`DRAIN_TIMEOUT`] without
    /// progress, then drops the rest.
    pub(super) async fn drain(&self) {
        let drained = async {
            while !self.channel.state().is_empty()
                && timeout(DRAIN_TIMEOUT, self.channel.taken.notified())
                    .await
                    .is_ok()
            {}
        };
        tokio::select! {
            () = self.wait_for_disconnect() => {}
            () = drained => {}
        }
        self.channel.state().discard_all();
    }

    /// Returns when the reader has disconnected.
    pub(super) async fn wait_for_disconnect(&self) {
        self.disconnected.cancelled().await;
    }
}

impl Stream for Reader {
    type Item = Result<pb::ConversationEvent, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.channel.state();
        // The encoder asks for the next event when it has sent the previous ones.
        state.permits.clear();
        if let Some(Waiting { event, permit }) = state.waiting.pop_front() {
            state.permits.extend(permit);
            state.position.clone_from(&event.position);
            self.channel.taken.notify_one();
            return Poll::Ready(Some(Ok(event)));
        }
        if state.is_over {
            return Poll::Ready(state.end.take().map(Err));
        }
        state.reader_waker = Some(context.waker().clone());
        Poll::Pending
    }
}
