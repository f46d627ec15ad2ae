//! What a turn has told so far. It holds one attempt at most: as much as the answer itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anneal_proto::v1::{self as pb, chat_response::Event};
use tokio::sync::watch;

use super::event::{AttemptBegun, TurnDone};
use crate::http::problem::Problem;

/// Bytes of one piece: what a reader is handed at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A turn's log.
pub(super) struct Log {
    /// Its name among all tellings of all turns.
    pub(super) run: u64,
    told: Mutex<Told>,
    changed: watch::Sender<()>,
}

/// What was told.
#[derive(Default)]
pub(super) struct Told {
    /// Ids of what was said; None: nothing is stored yet.
    pub(super) started: Option<Vec<i64>>,
    /// The present attempt; None: the first.
    pub(super) attempt: Option<AttemptBegun>,
    /// What the present attempt has said.
    pub(super) pieces: Vec<Piece>,
    pub(super) end: Option<Ended>,
    /// Whether a model answers now; false: that is not known yet, or an answer that is stored is told again.
    pub(super) is_live: bool,
}

/// A piece of an answer.
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
    Call(pb::ToolUsePart),
}

/// How a turn ends.
#[derive(Clone)]
pub(super) enum Ended {
    Done(TurnDone),
    Failed(Problem),
    /// It is too long ago; what is stored can be told again.
    Forgotten,
}

impl Told {
    /// The number of the present attempt.
    pub(super) fn attempt_number(&self) -> i32 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.number)
    }
}

impl Log {
    /// An empty log, and what its first reader hears changes by.
    pub(super) fn new() -> (Self, watch::Receiver<()>) {
        let (changed, first) = watch::channel(());
        let run = uuid::Uuid::new_v4().as_u64_pair().0;
        (Self { run, told: Mutex::default(), changed }, first)
    }

    /// What another reader hears changes by.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns once nobody reads it.
    pub(super) async fn unread(&self) {
        self.changed.closed().await;
    }

    /// What was told so far.
    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        // Whoever panicked while holding it has left it whole: each change is one assignment or one push.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down an event.
    pub(super) fn tell(&self, event: Event) {
        let mut told = self.told();
        match event {
            Event::Started(started) => {
                told.is_live = !started.replayed;
                told.started = Some(started.message_ids);
            }
            Event::Attempt(attempt) => {
                told.attempt = Some(attempt.into());
                told.pieces = Vec::new();
            }
            Event::TextDelta(text) => match told.pieces.last_mut() {
                Some(Piece::Text(before)) if before.len() + text.len() <= PIECE_BYTES => before.push_str(&text),
                _ => told.pieces.extend(cut(&text).map(Piece::Text)),
            },
            Event::ReasoningDelta(text) => match told.pieces.last_mut() {
                Some(Piece::Reasoning(before)) if before.len() + text.len() <= PIECE_BYTES => before.push_str(&text),
                _ => told.pieces.extend(cut(&text).map(Piece::Reasoning)),
            },
            Event::ToolCall(call) => told.pieces.push(Piece::Call(call)),
            Event::Done(done) => told.end = Some(Ended::Done(done.into())),
        }
        drop(told);
        self.changed.send_replace(());
    }

    /// Takes down how it ends, unless it has ended.
    pub(super) fn end(&self, ended: Ended) {
        self.told().end.get_or_insert(ended);
        self.changed.send_replace(());
    }

    /// Lets go of everything: readers who have not read it by now have it told again.
    pub(super) fn forget(&self) {
        let mut told = self.told();
        (told.pieces, told.end) = (Vec::new(), Some(Ended::Forgotten));
        drop(told);
        self.changed.send_replace(());
    }
}

fn cut(mut text: &str) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}
