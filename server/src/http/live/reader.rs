//! One reader of a log: begins at the beginning, or after what it has already, and is told each thing once.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    event::{AttemptBegun, Delta, TurnEvent, TurnFailed, TurnStarted},
    log::{Ended, Log, Piece, Told},
    place::{Delivered, Place, Trail},
};
use crate::http::problem::Problem;

/// A reader of a turn.
pub(in crate::http) struct Reader {
    log: Arc<Log>,
    changes: watch::Receiver<()>,
    session: String,
    request: String,
    /// The user's message, as far as the reader has heard of it.
    message: i64,
    /// What was delivered before, until it is known whether this telling goes on from there.
    returning: Option<Trail>,
    knows_start: bool,
    attempt: i32,
    /// Delivered of this attempt.
    trail: Trail,
    /// Of the log, still to be passed over: it was delivered before.
    skip: Skip,
    /// The piece that comes next, and the bytes of it that are delivered.
    next: (usize, usize),
    has_ended: bool,
}

/// What is passed over of each kind.
#[derive(Default)]
struct Skip {
    text: u64,
    reasoning: u64,
    calls: u64,
}

/// Whether a telling goes on from what was delivered.
enum Fit {
    /// It does: so much of it is passed over.
    Continues(Skip),
    /// It is another answer.
    Differs,
    /// It is not far enough to tell.
    Unknown,
}

impl Reader {
    /// A reader of this log from its beginning, or from the place where it was.
    pub(super) fn new(
        log: Arc<Log>,
        changes: watch::Receiver<()>,
        (session, request): (String, String),
        place: Option<&Place>,
    ) -> Self {
        let is_here = place.is_some_and(|place| place.run == log.run);
        Self {
            message: place.map_or(0, |place| place.message),
            returning: place.map(|place| place.trail),
            knows_start: place.is_some(),
            attempt: place.filter(|_| is_here).map_or(0, |place| place.attempt),
            trail: Trail::default(),
            skip: Skip::default(),
            next: (0, 0),
            has_ended: false,
            log,
            changes,
            session,
            request,
        }
    }

    /// Returns once what was said is stored; or why it was not.
    pub(in crate::http) async fn started(&mut self) -> Result<(), Problem> {
        loop {
            self.changes.borrow_and_update();
            {
                let told = self.log.told();
                match &told.end {
                    _ if told.started.is_some() => return Ok(()),
                    Some(Ended::Failed(problem)) => return Err(problem.clone()),
                    Some(_) => return Ok(()),
                    None => {}
                }
            }
            if self.changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// The next event and its id; None after the last.
    pub(in crate::http) async fn next(&mut self) -> Option<(String, TurnEvent)> {
        while !self.has_ended {
            self.changes.borrow_and_update();
            let log = Arc::clone(&self.log);
            let event = self.told(&log.told());
            if let Some(event) = event {
                return Some(event);
            }
            if !self.has_ended && self.changes.changed().await.is_err() {
                return None;
            }
        }
        None
    }

    /// The next event that was told; None: there is none yet.
    fn told(&mut self, told: &Told) -> Option<(String, TurnEvent)> {
        if matches!(told.end, Some(Ended::Forgotten)) {
            self.has_ended = true;
            return None;
        }
        if !self.knows_start
            && let Some(ids) = &told.started
        {
            self.knows_start = true;
            let started = TurnStarted {
                session_id: self.session.clone(),
                message_ids: ids.clone(),
                request_id: self.request.clone(),
            };
            return Some((self.id(told), TurnEvent::Started(started)));
        }
        if let Some(attempt) = told.attempt.as_ref().filter(|attempt| attempt.number > self.attempt) {
            return Some(self.begin_again(told, attempt.clone()));
        }
        if let Some(delivered) = self.returning {
            match fit(&delivered, told) {
                Fit::Continues(skip) => (self.returning, self.trail, self.skip) = (None, delivered, skip),
                Fit::Differs => return Some(self.begin_again(told, AttemptBegun::anew(told.attempt_number()))),
                Fit::Unknown => {}
            }
        }
        if self.returning.is_none()
            && let Some(event) = self.piece(told)
        {
            return Some((self.id(told), event));
        }
        told.end.as_ref().map(|end| self.end(told, end))
    }

    fn begin_again(&mut self, told: &Told, attempt: AttemptBegun) -> (String, TurnEvent) {
        self.attempt = told.attempt_number();
        (self.returning, self.trail, self.skip, self.next) = (None, Trail::default(), Skip::default(), (0, 0));
        (self.id(told), TurnEvent::Attempt(attempt))
    }

    /// The next piece that was not delivered.
    fn piece(&mut self, told: &Told) -> Option<TurnEvent> {
        loop {
            let (index, from) = self.next;
            let piece = told.pieces.get(index)?;
            let event = match piece {
                Piece::Text(text) => {
                    let rest = passed(&text[from..], &mut self.skip.text);
                    self.trail.text.bytes(rest.as_bytes());
                    delta(rest).map(TurnEvent::Text)
                }
                Piece::Reasoning(text) => {
                    let rest = passed(&text[from..], &mut self.skip.reasoning);
                    self.trail.reasoning.bytes(rest.as_bytes());
                    delta(rest).map(TurnEvent::Reasoning)
                }
                Piece::Call(_) if from > 0 => None,
                Piece::Call(_) if self.skip.calls > 0 => {
                    self.skip.calls -= 1;
                    None
                }
                Piece::Call(call) => {
                    self.trail.calls.call([&call.id, &call.name, &call.input]);
                    Some(TurnEvent::ToolCall(call.clone().into()))
                }
            };
            let end = match piece {
                Piece::Text(text) | Piece::Reasoning(text) => text.len(),
                Piece::Call(_) => 1,
            };
            // The last piece may still grow.
            self.next = if index + 1 < told.pieces.len() { (index + 1, 0) } else { (index, end) };
            if event.is_some() || self.next.0 == index {
                return event;
            }
        }
    }

    /// The last event. One that failed leaves the reader where it was, so that it may come back.
    fn end(&mut self, told: &Told, end: &Ended) -> (String, TurnEvent) {
        self.has_ended = true;
        match end {
            Ended::Failed(problem) => {
                self.trail = self.returning.unwrap_or(self.trail);
                (self.id(told), TurnEvent::Error(TurnFailed { problem: problem.clone() }))
            }
            Ended::Done(done) => (self.place(told, true).id(), TurnEvent::Done(done.clone())),
            Ended::Forgotten => unreachable!("it is asked for before"),
        }
    }

    fn id(&self, told: &Told) -> String {
        self.place(told, false).id()
    }

    fn place(&self, told: &Told, is_end: bool) -> Place {
        Place {
            session: self.session.clone(),
            request: self.request.clone(),
            message: told.started.as_ref().and_then(|ids| ids.last().copied()).unwrap_or(self.message),
            run: self.log.run,
            attempt: self.attempt,
            trail: self.trail,
            is_end,
        }
    }
}

fn delta(text: &str) -> Option<Delta> {
    (!text.is_empty()).then(|| Delta { text: text.to_owned() })
}

/// What is left of a piece once what was delivered is passed over.
fn passed<'t>(text: &'t str, skip: &mut u64) -> &'t str {
    let passed = usize::try_from(*skip).unwrap_or(usize::MAX).min(text.len());
    *skip -= passed as u64;
    // Only a forged place is not at a character's end.
    &text[text.ceil_char_boundary(passed)..]
}

/// Whether what was told goes on from what was delivered. Thoughts that are not kept cannot be told again: where a stored
/// answer has the same words, what was delivered of its thoughts stands. An answer that is made now differs as soon as its
/// thoughts do, and need not be told whole before that is known.
fn fit(delivered: &Trail, told: &Told) -> Fit {
    let begun = beginning(delivered, told);
    let (is_over, is_replay) = match &told.end {
        Some(Ended::Done(done)) => (true, done.replayed),
        Some(Ended::Failed(_) | Ended::Forgotten) | None => (false, false),
    };
    let differs = |delivered: Delivered, begun: Delivered| begun.0 == delivered.0 && begun != delivered;
    let agrees = |delivered: Delivered, begun: Delivered| begun == delivered;
    if differs(delivered.text, begun.text) || differs(delivered.calls, begun.calls) {
        return Fit::Differs;
    }
    if told.is_live && (differs(delivered.reasoning, begun.reasoning) || has_gone_another_way(delivered, &begun, told))
    {
        return Fit::Differs;
    }
    if !agrees(delivered.text, begun.text) || !agrees(delivered.calls, begun.calls) {
        return if is_over { Fit::Differs } else { Fit::Unknown };
    }
    let skip = Skip { text: delivered.text.0, reasoning: delivered.reasoning.0, calls: delivered.calls.0 };
    match (agrees(delivered.reasoning, begun.reasoning), is_over) {
        (true, _) => Fit::Continues(skip),
        (false, false) => Fit::Unknown,
        (false, true) if is_replay => Fit::Continues(Skip { reasoning: u64::MAX, ..skip }),
        (false, true) => Fit::Differs,
    }
}

/// Whether there is more of one kind than was delivered and less of another: what tells the same passes through what was
/// delivered.
fn has_gone_another_way(delivered: &Trail, begun: &Trail, told: &Told) -> bool {
    let counts = |trail: &Trail| [trail.text.0, trail.reasoning.0, trail.calls.0];
    let mut all = [0; 3];
    for piece in &told.pieces {
        match piece {
            Piece::Text(text) => all[0] += text.len() as u64,
            Piece::Reasoning(text) => all[1] += text.len() as u64,
            Piece::Call(_) => all[2] += 1,
        }
    }
    let had = counts(delivered);
    let is_ahead = all.iter().zip(&had).any(|(all, had)| all > had);
    is_ahead && counts(begun).iter().zip(&had).any(|(begun, had)| begun < had)
}

/// The trail of the log's beginning, as long as what was delivered or as long as it is.
fn beginning(delivered: &Trail, told: &Told) -> Trail {
    let mut begun = Trail::default();
    for piece in &told.pieces {
        match piece {
            Piece::Text(text) => extend(&mut begun.text, text, delivered.text.0),
            Piece::Reasoning(text) => extend(&mut begun.reasoning, text, delivered.reasoning.0),
            Piece::Call(call) if begun.calls.0 < delivered.calls.0 => {
                begun.calls.call([&call.id, &call.name, &call.input]);
            }
            Piece::Call(_) => {}
        }
    }
    begun
}

fn extend(begun: &mut Delivered, text: &str, until: u64) {
    let room = usize::try_from(until.saturating_sub(begun.0)).unwrap_or(usize::MAX);
    begun.bytes(&text.as_bytes()[..room.min(text.len())]);
}
