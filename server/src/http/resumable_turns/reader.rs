//! One reader of a log. It starts at the beginning or at its resume point, and delivers each part
//! of the answer once. `http/chat.rs` reads the resume point from the header `Last-Event-ID`.

use std::sync::Arc;

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1 as pb;
use anneal_store::TurnKey;
use tokio::sync::watch;

use super::{
    event::{AttemptBegun, Delta, TurnEvent, TurnFailed, TurnStarted},
    prefix_match::{MatchOutcome, PrefixMatch, Skip},
    resume_point::{DeliveredPrefix, ResumePoint},
    turn_log::{LogState, Piece, TurnEnd, TurnLog},
};
use crate::http::problem::Problem;

/// A reader of a turn.
pub(in crate::http) struct TurnReader {
    log: Arc<TurnLog>,
    changes: watch::Receiver<()>,
    session: ConversationId,
    request: String,
    /// The turn in the session; message 0: not known yet.
    turn: TurnKey,
    /// Compares the log with what was delivered before, until the result is known.
    prefix_match: Option<PrefixMatch>,
    has_sent_start: bool,
    /// The number of the attempt that the client knows of; 0: the first.
    attempt: i32,
    /// How many of the log's attempts after the first the client knows of.
    attempts_known: u64,
    /// The prefix of this attempt's answer that was delivered.
    delivered: DeliveredPrefix,
    /// The part of the log that is still to be skipped, because it was delivered before.
    skip: Skip,
    next: LogPosition,
    /// Whether the reader gets signed reasoning parts. They have no part in resume points.
    wants_reasoning_parts: bool,
    has_ended: bool,
}

/// Where a reader reads on in the pieces of a log.
#[derive(Clone, Copy, Default)]
struct LogPosition {
    /// Index of the piece.
    piece: usize,
    /// How many bytes of the piece were read; 1 for a tool call or a signed reasoning part that was
    /// read.
    bytes_read: usize,
}

/// The next item that a reader finds in the log.
enum NextItem {
    /// An event with its id.
    Event(String, Box<TurnEvent>),
    /// More of the answer: a copy, so that the log is not locked while the piece is processed.
    Piece(NewPiece),
    /// No item: the log has none yet, or will have none (`has_ended`).
    Nothing,
}

/// More of the answer: at most one piece of the log.
enum NewPiece {
    Text(String),
    Reasoning(String),
    ReasoningEnd(pb::ReasoningPart),
    Call(pb::ToolUsePart),
}

impl TurnReader {
    /// A reader of this log, from the beginning or from a resume point.
    pub(super) fn new(
        log: Arc<TurnLog>,
        changes: watch::Receiver<()>,
        (session, request): (ConversationId, String),
        resume_point: Option<&ResumePoint>,
    ) -> Self {
        let (attempt, attempts_known) = {
            let state = log.state();
            // The resume point may be of an attempt that is not the current one, or it may be
            // forged. Then the client does not know of any attempt of this log. If it is of another
            // log in which an attempt had the same number, `prefix_match` compares the answers.
            let is_current =
                |resume_point: &&ResumePoint| resume_point.attempt == state.attempt_number();
            resume_point
                .filter(is_current)
                .map_or((0, 0), |resume_point| {
                    (resume_point.attempt, state.attempts_begun)
                })
        };
        Self {
            turn: resume_point.map_or(TurnKey::Message(MessageId::NONE), |resume_point| {
                resume_point.turn
            }),
            prefix_match: resume_point.map(|resume_point| PrefixMatch::new(resume_point.delivered)),
            has_sent_start: resume_point.is_some(),
            attempt,
            attempts_known,
            delivered: DeliveredPrefix::default(),
            skip: Skip::default(),
            next: LogPosition::default(),
            wants_reasoning_parts: false,
            has_ended: false,
            log,
            changes,
            session,
            request,
        }
    }

    /// The turn in the session; message 0: nothing of it has been read yet.
    pub(in crate::http) const fn turn(&self) -> TurnKey {
        self.turn
    }

    /// The same reader, which also gets each signed reasoning part when it is complete, as
    /// [`TurnEvent::ReasoningEnd`]. Such an event has the id of the event before it. A reader that
    /// comes back there gets it again.
    pub(in crate::http) const fn with_reasoning_parts(mut self) -> Self {
        self.wants_reasoning_parts = true;
        self
    }

    /// Waits until the user's message is stored. Fails if the turn fails before. Also returns if
    /// the log is discarded.
    pub(in crate::http) async fn wait_for_start(&mut self) -> Result<(), Problem> {
        loop {
            self.changes.borrow_and_update();
            {
                let state = self.log.state();
                match &state.end {
                    _ if state.stored_message_ids.is_some() => return Ok(()),
                    Some(TurnEnd::Failed(problem)) => return Err(problem.clone()),
                    Some(_) => return Ok(()),
                    None => {}
                }
            }
            if self.changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// The next event and its id. None: the last was returned before, or the log was discarded.
    pub(in crate::http) async fn next(&mut self) -> Option<(String, TurnEvent)> {
        while !self.has_ended {
            self.changes.borrow_and_update();
            let log = Arc::clone(&self.log);
            let found = self.next_item(&log.state());
            match found {
                NextItem::Event(id, event) => return Some((id, *event)),
                NextItem::Piece(piece) => match self.deliver(piece) {
                    Some(event) => return Some((self.event_id(), event)),
                    // Yield, because many pieces may be skipped in a row.
                    None => tokio::task::yield_now().await,
                },
                NextItem::Nothing if self.has_ended => return None,
                NextItem::Nothing => self.changes.changed().await.ok()?,
            }
        }
        None
    }

    /// Reads the next item of the log.
    fn next_item(&mut self, state: &LogState) -> NextItem {
        if matches!(state.end, Some(TurnEnd::Discarded)) {
            self.has_ended = true;
            return NextItem::Nothing;
        }
        self.turn = state.turn.unwrap_or(self.turn);
        if !self.has_sent_start
            && let Some(ids) = &state.stored_message_ids
        {
            self.has_sent_start = true;
            let started = TurnStarted {
                session_id: self.session.to_string(),
                message_ids: ids.clone(),
                request_id: self.request.clone(),
                alternatives: (state.alternatives > 0).then_some(state.alternatives),
            };
            return NextItem::Event(self.event_id(), Box::new(TurnEvent::Started(started)));
        }
        if let Some(attempt) = state
            .attempt
            .as_ref()
            .filter(|_| state.attempts_begun > self.attempts_known)
        {
            return self.restart(state, attempt.clone());
        }
        if let Some(piece) = self.next_piece(state) {
            return NextItem::Piece(piece);
        }
        match self
            .prefix_match
            .as_ref()
            .map(|prefix_match| prefix_match.outcome(state.end.as_ref(), state.is_live))
        {
            Some(MatchOutcome::Continues(skip)) => {
                let continued = self
                    .prefix_match
                    .take()
                    .map(|prefix_match| prefix_match.continued());
                self.delivered = continued.unwrap_or_default();
                (self.skip, self.next) = (skip, LogPosition::default());
                return self
                    .next_piece(state)
                    .map_or_else(|| self.end_event(state), NextItem::Piece);
            }
            Some(MatchOutcome::Differs) => {
                return self.restart(state, AttemptBegun::answered_anew(state.attempt_number()));
            }
            Some(MatchOutcome::Unknown) | None => {}
        }
        self.end_event(state)
    }

    /// Begins again at the start of the current attempt. Returns the event that says so.
    fn restart(&mut self, state: &LogState, attempt: AttemptBegun) -> NextItem {
        (self.attempt, self.attempts_known) = (state.attempt_number(), state.attempts_begun);
        self.prefix_match = None;
        self.delivered = DeliveredPrefix::default();
        self.skip = Skip::default();
        self.next = LogPosition::default();
        NextItem::Event(self.event_id(), Box::new(TurnEvent::Attempt(attempt)))
    }

    /// A copy of the unread part of the current piece, or of the next piece. None: everything was
    /// read.
    fn next_piece(&mut self, state: &LogState) -> Option<NewPiece> {
        loop {
            let LogPosition { piece, bytes_read } = self.next;
            let (length, unread) = match state.pieces.get(piece)? {
                Piece::Text(text) => (
                    text.len(),
                    text.get(bytes_read..)
                        .map(|rest| NewPiece::Text(rest.to_owned())),
                ),
                Piece::Reasoning(text) => (
                    text.len(),
                    text.get(bytes_read..)
                        .map(|rest| NewPiece::Reasoning(rest.to_owned())),
                ),
                Piece::ReasoningEnd(part) => (
                    1,
                    self.wants_reasoning_parts
                        .then(|| NewPiece::ReasoningEnd(part.clone())),
                ),
                Piece::Call(call) => (1, Some(NewPiece::Call(call.clone()))),
            };
            // The last piece may still grow, so the reader stays there.
            let is_last = piece + 1 == state.pieces.len();
            self.next = if is_last {
                LogPosition {
                    piece,
                    bytes_read: length,
                }
            } else {
                LogPosition {
                    piece: piece + 1,
                    bytes_read: 0,
                }
            };
            if bytes_read < length && unread.is_some() {
                return unread;
            }
            if is_last {
                return None;
            }
        }
    }

    /// Compares a piece with what was delivered before, skips it, or makes it an event.
    fn deliver(&mut self, piece: NewPiece) -> Option<TurnEvent> {
        if let Some(prefix_match) = &mut self.prefix_match {
            match piece {
                NewPiece::Text(text) => prefix_match.push_text(&text),
                NewPiece::Reasoning(text) => prefix_match.push_reasoning(&text),
                NewPiece::ReasoningEnd(_) => {}
                NewPiece::Call(call) => prefix_match.push_call([&call.id, &call.name, &call.input]),
            }
            return None;
        }
        match piece {
            NewPiece::Text(text) => {
                let rest = skip_delivered(text, &mut self.skip.text);
                self.delivered.text.push_bytes(rest.as_bytes());
                delta(rest).map(TurnEvent::Text)
            }
            NewPiece::Reasoning(text) => {
                let rest = skip_delivered(text, &mut self.skip.reasoning);
                self.delivered.reasoning.push_bytes(rest.as_bytes());
                delta(rest).map(TurnEvent::Reasoning)
            }
            // What follows it was delivered before, and so was the part.
            NewPiece::ReasoningEnd(_) if self.skip != Skip::default() => None,
            NewPiece::ReasoningEnd(part) => Some(TurnEvent::ReasoningEnd(part)),
            NewPiece::Call(_) if self.skip.calls > 0 => {
                self.skip.calls -= 1;
                None
            }
            NewPiece::Call(call) => {
                self.delivered
                    .calls
                    .push_call([&call.id, &call.name, &call.input]);
                Some(TurnEvent::ToolCall(call.into()))
            }
        }
    }

    /// The last event, if the turn has ended. A failure does not change the resume point, so that
    /// the reader may come back.
    fn end_event(&mut self, state: &LogState) -> NextItem {
        let Some(end) = &state.end else {
            return NextItem::Nothing;
        };
        self.has_ended = true;
        match end {
            TurnEnd::Failed(problem) => {
                self.delivered = self
                    .prefix_match
                    .map_or(self.delivered, |prefix_match| prefix_match.delivered());
                let failed = TurnFailed {
                    problem: problem.clone(),
                };
                NextItem::Event(self.event_id(), Box::new(TurnEvent::Error(failed)))
            }
            TurnEnd::Done(done) => {
                let last = ResumePoint::at_end(self.session, self.turn);
                NextItem::Event(last.event_id(), Box::new(TurnEvent::Done(done.clone())))
            }
            TurnEnd::Discarded => NextItem::Nothing,
        }
    }

    /// The event id of the current position.
    fn event_id(&self) -> String {
        let resume_point = ResumePoint {
            session: self.session.into(),
            turn: self.turn,
            attempt: self.attempt,
            delivered: self.delivered,
            is_end: false,
        };
        resume_point.event_id()
    }
}

fn delta(text: String) -> Option<Delta> {
    (!text.is_empty()).then_some(Delta { text })
}

/// Cuts off the part of a text that was delivered before: its first `skip` bytes. Reduces `skip` by
/// what it cuts off.
fn skip_delivered(mut text: String, skip: &mut u64) -> String {
    let skipped = usize::try_from(*skip).unwrap_or(usize::MAX).min(text.len());
    *skip -= skipped as u64;
    // Only a forged resume point can be inside a character.
    text.drain(..text.ceil_char_boundary(skipped));
    text
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::TenantId;
    use pb::chat_response::{Done, Event, Started};
    use uuid::Uuid;

    use super::*;
    use crate::http::resumable_turns::log_budget::LogBudget;

    const TENANT: TenantId = TenantId(Uuid::from_u128(1));
    const SESSION: ConversationId = ConversationId(Uuid::from_u128(2));

    /// The log of an answer with two signed reasoning parts: before its text, and at its end.
    fn log() -> Arc<TurnLog> {
        let (log, _changes) = TurnLog::new(&LogBudget::new(10_000, 10_000), TENANT);
        let signed = |signature: &str| {
            Event::ReasoningEnd(pb::ReasoningPart {
                signature: signature.into(),
                ..pb::ReasoningPart::default()
            })
        };
        let started = Started {
            message_ids: vec![1],
            turn: 1,
            ..Started::default()
        };
        for event in [
            Event::Started(started),
            Event::ReasoningDelta("hm".into()),
            signed("first"),
            Event::TextDelta("text".into()),
            signed("second"),
            Event::Done(Done::default()),
        ] {
            log.record(event);
        }
        log
    }

    /// The ids and the contents of what a reader gets.
    async fn read(mut reader: TurnReader) -> Vec<(String, String)> {
        let mut events = Vec::new();
        while let Some((id, event)) = reader.next().await {
            let content = match event {
                TurnEvent::Started(_) => "started".to_owned(),
                TurnEvent::Text(delta) | TurnEvent::Reasoning(delta) => delta.text,
                TurnEvent::ReasoningEnd(part) => part.signature,
                TurnEvent::Done(_) => "done".to_owned(),
                other => panic!("not in the log: {other:?}"),
            };
            events.push((id, content));
        }
        events
    }

    fn reader(log: &Arc<TurnLog>, resume_point: Option<&ResumePoint>) -> TurnReader {
        let names = (SESSION, "r".to_owned());
        TurnReader::new(Arc::clone(log), log.changes(), names, resume_point)
    }

    fn contents(events: &[(String, String)]) -> Vec<&str> {
        events.iter().map(|(_, content)| content.as_str()).collect()
    }

    #[tokio::test]
    async fn only_readers_that_ask_get_signed_reasoning_parts() {
        let log = log();
        let without = read(reader(&log, None)).await;
        assert_eq!(contents(&without), ["started", "hm", "text", "done"]);
        let with = read(reader(&log, None).with_reasoning_parts()).await;
        let expected = ["started", "hm", "first", "text", "second", "done"];
        assert_eq!(contents(&with), expected);
        let other_ids = with
            .iter()
            .filter(|(_, content)| !["first", "second"].contains(&content.as_str()));
        assert!(without.iter().eq(other_ids), "the ids are the same");
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_gets_the_parts_after_what_it_has() {
        let log = log();
        let all = read(reader(&log, None)).await;
        for (place, expected) in [
            (1, &["first", "text", "second", "done"][..]),
            (2, &["second", "done"]),
        ] {
            let resume_point = ResumePoint::parse(all[place].0.as_bytes());
            let reader = reader(&log, resume_point.as_ref()).with_reasoning_parts();
            assert_eq!(contents(&read(reader).await), expected);
        }
    }
}
