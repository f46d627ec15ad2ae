//! What a turn has told so far. It holds one attempt at most: as much as the answer itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anneal_core::caller::TenantId;
use anneal_proto::v1::{self as pb, chat_response::Event};
use tokio::sync::watch;

use super::{
    budget::{Account, LogBudget},
    event::{AttemptBegun, TurnDone},
};
use crate::http::problem::Problem;

/// Bytes of one piece: what a reader is handed at once.
const PIECE_BYTES: usize = 64 * 1024;
/// What a piece takes beside its bytes.
const PIECE_OVERHEAD: u64 = 64;

/// A turn's log.
pub(super) struct Log {
    /// Its name among all tellings of all turns.
    pub(super) run: u64,
    told: Mutex<Told>,
    changed: watch::Sender<()>,
    account: Account,
}

/// What was told.
#[derive(Default)]
pub(super) struct Told {
    /// Ids of what was said; None: nothing is stored yet.
    pub(super) started: Option<Vec<i64>>,
    /// The present attempt; None: the first.
    pub(super) attempt: Option<AttemptBegun>,
    /// How often another attempt has begun: a place in the pieces means nothing after that.
    pub(super) attempts_begun: u64,
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
    /// It is too long ago, or others need the memory; what is stored can be told again.
    Forgotten,
}

impl Log {
    /// An empty log of this tenant, and what its first reader hears changes by.
    pub(super) fn new(budget: &LogBudget, tenant: TenantId) -> (Arc<Self>, watch::Receiver<()>) {
        let (changed, first) = watch::channel(());
        let run = uuid::Uuid::new_v4().as_u64_pair().0;
        let log = Arc::new_cyclic(|log| Self {
            run,
            told: Mutex::default(),
            changed,
            account: budget.open(tenant, std::sync::Weak::clone(log)),
        });
        (log, first)
    }

    /// What it holds of the budget.
    #[cfg(test)]
    pub(super) const fn account(&self) -> &Account {
        &self.account
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

    /// Whether it has let go of everything.
    pub(super) fn is_forgotten(&self) -> bool {
        matches!(self.told().end, Some(Ended::Forgotten))
    }

    /// Takes down an event; nothing once everything was let go.
    pub(super) fn tell(&self, event: Event) {
        let mut told = self.told();
        if matches!(told.end, Some(Ended::Forgotten)) {
            return;
        }
        let mut bytes = 0;
        match event {
            Event::Started(started) => {
                told.is_live = !started.replayed;
                told.started = Some(started.message_ids);
            }
            Event::Attempt(attempt) => {
                told.attempt = Some(attempt.into());
                told.attempts_begun += 1;
                told.pieces = Vec::new();
                self.account.clear();
            }
            Event::TextDelta(text) => bytes = told.add(&text, Piece::Text),
            Event::ReasoningDelta(text) => bytes = told.add(&text, Piece::Reasoning),
            Event::ToolCall(call) => {
                bytes = (call.id.len() + call.name.len() + call.input.len()) as u64 + PIECE_OVERHEAD;
                told.pieces.push(Piece::Call(call));
            }
            Event::Done(done) => {
                told.end = Some(Ended::Done(done.into()));
                self.account.end();
            }
        }
        drop(told);
        self.take(bytes);
        self.changed.send_replace(());
    }

    /// Takes so many bytes of the budget, and has logs let go that hold too many.
    pub(super) fn take(&self, bytes: u64) {
        if bytes > 0 {
            self.account.grow(bytes).iter().for_each(|log| log.forget());
        }
    }

    /// Takes down how it ends, unless it has ended.
    pub(super) fn end(&self, ended: Ended) {
        self.told().end.get_or_insert(ended);
        self.account.end();
        self.changed.send_replace(());
    }

    /// Lets go of everything: readers who have not read it by now have it told again.
    pub(super) fn forget(&self) {
        let mut told = self.told();
        (told.pieces, told.end) = (Vec::new(), Some(Ended::Forgotten));
        self.account.clear();
        drop(told);
        self.changed.send_replace(());
    }
}

impl Told {
    /// The number of the present attempt.
    pub(super) fn attempt_number(&self) -> i32 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.number)
    }

    /// Adds text to the last piece, or as pieces of its own. Returns the bytes that this takes.
    fn add(&mut self, text: &str, kind: fn(String) -> Piece) -> u64 {
        let bytes = text.len() as u64;
        if let Some(last) = self.pieces.last_mut() {
            let has_same_kind = std::mem::discriminant(last) == std::mem::discriminant(&kind(String::new()));
            if let Piece::Text(before) | Piece::Reasoning(before) = last {
                if has_same_kind && before.len() + text.len() <= PIECE_BYTES {
                    before.push_str(text);
                    return bytes;
                }
                // It grows no more: what was kept for that is given back.
                before.shrink_to_fit();
            }
        }
        let before = self.pieces.len();
        self.pieces.extend(cut(text).map(kind));
        bytes + (self.pieces.len() - before) as u64 * PIECE_OVERHEAD
    }
}

fn cut(mut text: &str) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}
