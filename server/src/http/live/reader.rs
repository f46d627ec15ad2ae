//! One reader of a log: begins at the beginning, or after what it has already, and is told each thing once.

use std::sync::Arc;

use anneal_proto::v1 as pb;
use tokio::sync::watch;

use super::{
    event::{AttemptBegun, Delta, TurnEvent, TurnFailed, TurnStarted},
    log::{Ended, Log, Piece, Told},
    place::{Place, Trail},
    resume::{Comparison, Fit, Skip},
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
    returning: Option<Comparison>,
    knows_start: bool,
    attempt: i32,
    /// Of the log's attempts, how many have begun that the reader knows of.
    attempts_known: u64,
    /// Delivered of this attempt.
    trail: Trail,
    /// Of the log, still to be passed over: it was delivered before.
    skip: Skip,
    /// The piece that comes next, and the bytes of it that were read.
    next: (usize, usize),
    has_ended: bool,
}

/// What a reader finds in the log.
enum Found {
    /// An event with its id.
    Event(String, TurnEvent),
    /// More of the answer: a copy, to be looked at while nobody waits for the log.
    More(More),
    /// Nothing new.
    Nothing,
}

/// More of an answer: at most what one piece of the log holds.
enum More {
    Text(String),
    Reasoning(String),
    Call(pb::ToolUsePart),
}

impl Reader {
    /// A reader of this log from its beginning, or from the place where it was.
    pub(super) fn new(
        log: Arc<Log>,
        changes: watch::Receiver<()>,
        (session, request): (String, String),
        place: Option<&Place>,
    ) -> Self {
        let (attempt, attempts_known) = {
            let told = log.told();
            // Places come from outside: one that claims another attempt than the present one has it begin again.
            let is_here = |place: &&Place| place.run == log.run && place.attempt == told.attempt_number();
            place.filter(is_here).map_or((0, 0), |place| (place.attempt, told.attempts_begun))
        };
        Self {
            message: place.map_or(0, |place| place.message),
            returning: place.map(|place| Comparison::new(place.trail)),
            knows_start: place.is_some(),
            attempt,
            attempts_known,
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
            let found = self.find(&log.told());
            match found {
                Found::Event(id, event) => return Some((id, event)),
                Found::More(more) => match self.take(more) {
                    Some(event) => return Some((self.id(), event)),
                    // What was delivered before may be long.
                    None => tokio::task::yield_now().await,
                },
                Found::Nothing if self.has_ended => return None,
                Found::Nothing => self.changes.changed().await.ok()?,
            }
        }
        None
    }

    /// What comes next in the log.
    fn find(&mut self, told: &Told) -> Found {
        if matches!(told.end, Some(Ended::Forgotten)) {
            self.has_ended = true;
            return Found::Nothing;
        }
        if let Some(last) = told.started.as_ref().and_then(|ids| ids.last()) {
            self.message = *last;
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
            return Found::Event(self.id(), TurnEvent::Started(started));
        }
        if let Some(attempt) = told.attempt.as_ref().filter(|_| told.attempts_begun > self.attempts_known) {
            return self.begin_again(told, attempt.clone());
        }
        if let Some(more) = self.more(told) {
            return Found::More(more);
        }
        match self.returning.as_ref().map(|comparison| comparison.fit(told.end.as_ref(), told.is_live)) {
            Some(Fit::Continues(skip)) => {
                let delivered = self.returning.take().map(|comparison| comparison.delivered());
                (self.trail, self.skip, self.next) = (delivered.unwrap_or_default(), skip, (0, 0));
                return self.more(told).map_or_else(|| self.ended(told), Found::More);
            }
            Some(Fit::Differs) => return self.begin_again(told, AttemptBegun::anew(told.attempt_number())),
            Some(Fit::Unknown) | None => {}
        }
        self.ended(told)
    }

    fn begin_again(&mut self, told: &Told, attempt: AttemptBegun) -> Found {
        (self.attempt, self.attempts_known) = (told.attempt_number(), told.attempts_begun);
        (self.returning, self.trail, self.skip, self.next) = (None, Trail::default(), Skip::default(), (0, 0));
        Found::Event(self.id(), TurnEvent::Attempt(attempt))
    }

    /// A copy of what was not read yet, one piece at most; None: everything was read.
    fn more(&mut self, told: &Told) -> Option<More> {
        loop {
            let (index, from) = self.next;
            let piece = told.pieces.get(index)?;
            let (end, more) = match piece {
                Piece::Text(text) => (text.len(), text.get(from..).map(|rest| More::Text(rest.to_owned()))),
                Piece::Reasoning(text) => (text.len(), text.get(from..).map(|rest| More::Reasoning(rest.to_owned()))),
                Piece::Call(call) => (1, Some(More::Call(call.clone()))),
            };
            // The last piece may still grow.
            self.next = if index + 1 < told.pieces.len() { (index + 1, 0) } else { (index, end) };
            if from < end {
                return more;
            }
            if self.next.0 == index {
                return None;
            }
        }
    }

    /// Compares it with what was delivered before, or passes over what was, or makes it an event.
    fn take(&mut self, more: More) -> Option<TurnEvent> {
        if let Some(comparison) = &mut self.returning {
            match more {
                More::Text(text) => comparison.text(&text),
                More::Reasoning(text) => comparison.reasoning(&text),
                More::Call(call) => comparison.call([&call.id, &call.name, &call.input]),
            }
            return None;
        }
        match more {
            More::Text(text) => {
                let rest = passed(text, &mut self.skip.text);
                self.trail.text.bytes(rest.as_bytes());
                delta(rest).map(TurnEvent::Text)
            }
            More::Reasoning(text) => {
                let rest = passed(text, &mut self.skip.reasoning);
                self.trail.reasoning.bytes(rest.as_bytes());
                delta(rest).map(TurnEvent::Reasoning)
            }
            More::Call(_) if self.skip.calls > 0 => {
                self.skip.calls -= 1;
                None
            }
            More::Call(call) => {
                self.trail.calls.call([&call.id, &call.name, &call.input]);
                Some(TurnEvent::ToolCall(call.into()))
            }
        }
    }

    /// The last event, if the turn has ended. One that failed leaves the reader where it was, so that it may come back.
    fn ended(&mut self, told: &Told) -> Found {
        let Some(end) = &told.end else { return Found::Nothing };
        self.has_ended = true;
        match end {
            Ended::Failed(problem) => {
                self.trail = self.returning.map_or(self.trail, |comparison| comparison.delivered());
                Found::Event(self.id(), TurnEvent::Error(TurnFailed { problem: problem.clone() }))
            }
            Ended::Done(done) => {
                let last = Place { is_end: true, ..self.place() };
                Found::Event(last.id(), TurnEvent::Done(done.clone()))
            }
            Ended::Forgotten => Found::Nothing,
        }
    }

    /// The id of an event that is the last so far.
    fn id(&self) -> String {
        self.place().id()
    }

    fn place(&self) -> Place {
        Place {
            session: self.session.clone(),
            request: self.request.clone(),
            message: self.message,
            run: self.log.run,
            attempt: self.attempt,
            trail: self.trail,
            is_end: false,
        }
    }
}

fn delta(text: String) -> Option<Delta> {
    (!text.is_empty()).then_some(Delta { text })
}

/// What is left of a text once what was delivered is passed over.
fn passed(mut text: String, skip: &mut u64) -> String {
    let passed = usize::try_from(*skip).unwrap_or(usize::MAX).min(text.len());
    *skip -= passed as u64;
    // Only a forged place is not at a character's end.
    text.drain(..text.ceil_char_boundary(passed));
    text
}
