//! The log of one turn. It holds only the current attempt, so at most one answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anneal_core::{caller::TenantId, message::MessageId};
use anneal_proto::v1::{self as pb, chat_response::Event};
use anneal_store::TurnKey;
use tokio::sync::watch;

use super::{
    event::{AttemptBegun, TurnDone},
    log_budget::{DiscardableLog, LogAllocation, LogBudget},
};
use crate::http::problem::Problem;

/// Most bytes of a piece. A reader copies one piece at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of memory that a piece takes beside its content.
const PIECE_OVERHEAD: u64 = 64;

/// The log of a turn.
pub(super) struct TurnLog {
    state: Mutex<LogState>,
    /// Tells readers that the log has changed.
    changed: watch::Sender<()>,
    allocation: LogAllocation,
}

/// The events that were logged so far.
#[derive(Default)]
pub(super) struct LogState {
    /// Ids of the stored messages; None: nothing is stored yet.
    pub(super) stored_message_ids: Option<Vec<i64>>,
    /// The turn in its session; None: nothing is stored yet.
    pub(super) turn: Option<TurnKey>,
    /// Number of withdrawn answers to the same question.
    pub(super) alternatives: i32,
    /// The current attempt; None: the first.
    pub(super) attempt: Option<AttemptBegun>,
    /// How many attempts have begun after the first. Each empties `pieces`, so that positions of
    /// readers in it become invalid.
    pub(super) attempts_begun: u64,
    /// The answer of the current attempt.
    pub(super) pieces: Vec<Piece>,
    pub(super) end: Option<TurnEnd>,
    /// Whether the answer comes from a model. False: not known yet, or a stored answer is replayed.
    pub(super) is_live: bool,
}

/// A piece of an answer.
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
    /// A signed reasoning part, whose text came before.
    ReasoningEnd(pb::ReasoningPart),
    Call(pb::ToolUsePart),
}

/// Why a log gets no more events.
#[derive(Clone)]
pub(super) enum TurnEnd {
    /// The turn has succeeded.
    Done(TurnDone),
    /// The turn has failed.
    Failed(Problem),
    /// The content was discarded, because the log has expired or its memory was needed. A stored
    /// answer can be replayed.
    Discarded,
}

impl TurnLog {
    /// An empty log of this tenant, and the change notifications for its first reader.
    pub(super) fn new(budget: &LogBudget, tenant: TenantId) -> (Arc<Self>, watch::Receiver<()>) {
        let (changed, first) = watch::channel(());
        let log = Arc::new_cyclic(|log| Self {
            state: Mutex::default(),
            changed,
            allocation: budget.register(tenant, Weak::<Self>::clone(log)),
        });
        (log, first)
    }

    /// The log's allocation of the budget.
    #[cfg(test)]
    pub(super) const fn allocation(&self) -> &LogAllocation {
        &self.allocation
    }

    /// Change notifications for another reader.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until no reader is left.
    pub(super) async fn wait_for_no_readers(&self) {
        self.changed.closed().await;
    }

    /// Locks and returns the events that were logged so far.
    pub(super) fn state(&self) -> MutexGuard<'_, LogState> {
        // A panic cannot leave the state half changed: nothing panics once a change has begun.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the content was discarded.
    pub(super) fn is_discarded(&self) -> bool {
        matches!(self.state().end, Some(TurnEnd::Discarded))
    }

    /// Logs an event. Once the content was discarded, logs only the start of the turn: a request
    /// that waited may lose its log before, and the relay must know whether the turn is live.
    pub(super) fn record(&self, event: Event) {
        let mut state = self.state();
        if matches!(state.end, Some(TurnEnd::Discarded)) && !matches!(event, Event::Started(_)) {
            return;
        }
        let mut bytes = 0;
        match event {
            Event::Started(started) => {
                state.is_live = !started.replayed;
                state.turn = if started.change_id > 0 {
                    Some(TurnKey::Anew(started.change_id))
                } else {
                    let first = started.message_ids.first();
                    first.map(|first| TurnKey::Message(MessageId(*first)))
                };
                state.alternatives = started.alternatives;
                state.stored_message_ids = Some(started.message_ids);
            }
            Event::Attempt(attempt) => {
                state.attempt = Some(attempt.into());
                state.attempts_begun += 1;
                state.pieces = Vec::new();
                self.allocation.release();
            }
            Event::TextDelta(text) => bytes = state.append_text(&text, Piece::Text),
            Event::ReasoningDelta(text) => bytes = state.append_text(&text, Piece::Reasoning),
            Event::ReasoningEnd(part) => {
                bytes = (part.text.len() + part.signature.len() + part.provider.len()) as u64
                    + PIECE_OVERHEAD;
                state.pieces.push(Piece::ReasoningEnd(part));
            }
            Event::ToolCall(call) => {
                bytes =
                    (call.id.len() + call.name.len() + call.input.len()) as u64 + PIECE_OVERHEAD;
                state.pieces.push(Piece::Call(call));
            }
            Event::Done(done) => {
                state.end = Some(TurnEnd::Done(done.into()));
                self.allocation.mark_ended();
            }
        }
        drop(state);
        self.charge(bytes);
        self.changed.send_replace(());
    }

    /// Charges bytes to the budget, and discards the logs that must make room.
    pub(super) fn charge(&self, bytes: u64) {
        if bytes > 0 {
            self.allocation
                .charge(bytes)
                .iter()
                .for_each(|log| log.discard());
        }
    }

    /// Records why the log gets no more events, unless an end is recorded already.
    pub(super) fn end(&self, ended: TurnEnd) {
        self.state().end.get_or_insert(ended);
        self.allocation.mark_ended();
        self.changed.send_replace(());
    }
}

impl DiscardableLog for TurnLog {
    /// Discards the content, also of a turn that has ended. Readers that are not done get the rest
    /// from a replay.
    fn discard(&self) {
        let mut state = self.state();
        (state.pieces, state.end) = (Vec::new(), Some(TurnEnd::Discarded));
        self.allocation.release();
        drop(state);
        self.changed.send_replace(());
    }
}

impl LogState {
    /// The number of the current attempt; 0: the first.
    pub(super) fn attempt_number(&self) -> i32 {
        self.attempt.as_ref().map_or(0, |attempt| attempt.number)
    }

    /// Appends text to the last piece, or as new pieces. Returns the memory that this takes.
    fn append_text(&mut self, text: &str, kind: fn(String) -> Piece) -> u64 {
        let bytes = text.len() as u64;
        if let Some(last) = self.pieces.last_mut() {
            let is_same_kind =
                std::mem::discriminant(last) == std::mem::discriminant(&kind(String::new()));
            if let Piece::Text(last_text) | Piece::Reasoning(last_text) = last {
                if is_same_kind && last_text.len() + text.len() <= PIECE_BYTES {
                    last_text.push_str(text);
                    return bytes;
                }
                // The piece does not grow any more: free its spare capacity.
                last_text.shrink_to_fit();
            }
        }
        let pieces_before = self.pieces.len();
        self.pieces.extend(split_into_pieces(text).map(kind));
        bytes + (self.pieces.len() - pieces_before) as u64 * PIECE_OVERHEAD
    }
}

fn split_into_pieces(mut text: &str) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use pb::chat_response::Started;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_log_that_was_discarded_before_the_turn_started_knows_whether_the_turn_is_live() {
        for replayed in [false, true] {
            let budget = LogBudget::new(100, 100);
            let (log, _changes) = TurnLog::new(&budget, TenantId(Uuid::from_u128(1)));
            log.discard();
            log.record(Event::Started(Started {
                message_ids: vec![1],
                turn: 1,
                replayed,
                ..Started::default()
            }));
            log.record(Event::TextDelta("more".into()));
            let state = log.state();
            assert_eq!(state.is_live, !replayed);
            assert!(state.pieces.is_empty() && matches!(state.end, Some(TurnEnd::Discarded)));
        }
    }
}
