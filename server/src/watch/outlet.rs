//! The way of a watch's events to its reader. Few events wait for it; a reader that takes none for too long is dropped, and
//! what waited for it with it.

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

use super::{Changes, budget::Held, pieces::InPieces};
use crate::status::Failure;

/// Events that may wait for their reader.
const WAITING: usize = 16;
/// How long a reader may take nothing after its watch has ended.
const LEAVING: Duration = Duration::from_mins(1);

/// The watcher's end of the way.
pub(super) struct Outlet {
    way: Arc<Way>,
    stall: Duration,
    gone: CancellationToken,
}

/// The reader's end of the way.
struct Reader {
    way: Arc<Way>,
    _gone: DropGuard,
}

/// What lies between the two.
#[derive(Default)]
pub(super) struct Way {
    state: Mutex<State>,
    /// Rung for each event, and each piece of one, that the reader takes.
    taken: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// What is left of events that are on their way into the connection.
    rest: Bytes,
    /// What the events take of the budget that were taken last.
    rooms: Vec<Held>,
    /// The position of the last event that the reader took.
    position: String,
    /// How the watch ended, until the reader has taken that too.
    end: Option<Status>,
    is_over: bool,
    reader: Option<Waker>,
}

/// An event that waits, and what it takes of the budget.
struct Waiting {
    event: pb::ConversationEvent,
    room: Option<Held>,
}

/// The reader has taken no event for too long.
#[derive(Debug)]
pub(super) struct TooSlow;

/// A way for the events of one watch.
pub(super) fn open(stall: Duration) -> (Outlet, Response<Changes>) {
    let (way, gone) = (Arc::<Way>::default(), CancellationToken::new());
    let reader = Reader { way: Arc::clone(&way), _gone: gone.clone().drop_guard() };
    let mut changes = Response::new(Box::pin(reader) as Changes);
    changes.extensions_mut().insert(InPieces(Arc::clone(&way)));
    (Outlet { way, stall, gone }, changes)
}

impl Way {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first piece of what goes into the connection now. A copy: the whole could not be let go while a piece of it is held.
    pub(super) fn first_piece(&self, whole: Bytes, most: usize) -> Bytes {
        if whole.len() <= most {
            return whole;
        }
        self.state().rest = whole;
        self.next_piece(most).unwrap_or_default()
    }

    /// The next piece; None: everything is in the connection.
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

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rest.is_empty()
    }

    /// Drops every event.
    fn let_go(&mut self) {
        self.waiting = VecDeque::new();
        self.rest = Bytes::new();
        self.rooms = Vec::new();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Outlet {
    /// Sends an event once few others wait, with what it takes of the budget.
    pub(super) async fn send(&self, event: pb::ConversationEvent, room: Option<Held>) -> Result<(), TooSlow> {
        self.until(|state| state.waiting.len() < WAITING).await?;
        let mut state = self.way.state();
        state.waiting.push_back(Waiting { event, room });
        state.wake();
        Ok(())
    }

    /// Returns once the reader has taken every event.
    pub(super) async fn all_taken(&self) -> Result<(), TooSlow> {
        self.until(State::is_empty).await
    }

    /// Returns once this holds; each event, and each piece of one, that is taken gives the reader new time.
    async fn until(&self, holds: impl Fn(&State) -> bool) -> Result<(), TooSlow> {
        while !holds(&self.way.state()) {
            timeout(self.stall, self.way.taken.notified()).await.map_err(|_| TooSlow)?;
        }
        Ok(())
    }

    /// Where the reader stands: the position of the last event that it took.
    pub(super) fn position(&self) -> String {
        self.way.state().position.clone()
    }

    /// Ends the watch after the events that wait; those that wait for a reader which is too slow are let go.
    pub(super) fn end(&self, failure: Failure) -> Code {
        let mut state = self.way.state();
        if matches!(failure, Failure::WatcherTooSlow { .. }) {
            state.waiting = VecDeque::new();
        }
        let status = Status::from(failure);
        let code = status.code();
        (state.end, state.is_over) = (Some(status), true);
        state.wake();
        code
    }

    /// Waits until the reader has taken what was there for it when the watch ended. One that takes none of it for a while gets
    /// the end without the rest.
    pub(super) async fn leave(&self) {
        let all_taken = async {
            while !self.way.state().is_empty() && timeout(LEAVING, self.way.taken.notified()).await.is_ok() {}
        };
        tokio::select! {
            () = self.gone() => {}
            () = all_taken => {}
        }
        self.way.state().let_go();
    }

    /// Returns once the reader has gone.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

impl Stream for Reader {
    type Item = Result<pb::ConversationEvent, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.way.state();
        // Whoever asks for the next event has sent the one before.
        state.rooms.clear();
        if let Some(Waiting { event, room }) = state.waiting.pop_front() {
            state.rooms.extend(room);
            state.position.clone_from(&event.position);
            self.way.taken.notify_one();
            return Poll::Ready(Some(Ok(event)));
        }
        if state.is_over {
            return Poll::Ready(state.end.take().map(Err));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}
