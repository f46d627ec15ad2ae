//! The answer as it comes.

use anneal_core::tokens::Tokens;
use eventsource_stream::{Event, EventStream, EventStreamError};
use futures::{StreamExt as _, stream::BoxStream};

use super::{
    CallCost, CallFailure, CallUsage, Piece,
    answer::{Dialect, UnderWay},
    body::{Body, Form},
    failure,
};
use crate::provider_error::midway;

/// The pieces of an answer that is under way. Dropped, it ends the provider's call.
pub struct Pieces {
    source: Source,
    dialect: Box<dyn Dialect>,
    answer: UnderWay,
}

enum Source {
    /// Nothing of the body is read yet.
    Unread(Box<Body>),
    Events(Box<EventStream<BoxStream<'static, Result<String, CallFailure>>>>),
    Over,
}

impl Pieces {
    pub(super) fn new(body: Body, dialect: Box<dyn Dialect>, sent_tokens: Option<Tokens>) -> Self {
        Self { source: Source::Unread(Box::new(body)), dialect, answer: UnderWay::new(sent_tokens) }
    }

    /// The next piece; None after [`Piece::End`] or a failure. What came before a failure is no answer. Nothing is lost when
    /// the future is dropped before it is ready.
    pub async fn next(&mut self) -> Option<Result<Piece, CallFailure>> {
        loop {
            if let Some(piece) = self.answer.take() {
                return Some(Ok(piece));
            }
            if matches!(self.source, Source::Over) {
                return None;
            }
            if let Err(failure) = self.advance().await {
                self.source = Source::Over;
                self.answer.clear();
                return Some(Err(failure));
            }
        }
    }

    /// The tokens that the provider has counted so far; zeros where it has told none.
    pub(super) const fn usage(&self) -> CallUsage {
        self.answer.usage()
    }

    /// Reads one event, or the whole document.
    async fn advance(&mut self) -> Result<(), CallFailure> {
        match &mut self.source {
            Source::Over => Ok(()),
            Source::Unread(body) => match body.form().await? {
                Form::Document => {
                    let json = body.rest().await?;
                    failed_midway("", json)?;
                    self.dialect.read_whole(json, &mut self.answer)?;
                    self.answer.close();
                    self.finish()
                }
                Form::Events => {
                    if let Source::Unread(body) = std::mem::replace(&mut self.source, Source::Over) {
                        self.source = Source::Events(Box::new(EventStream::new(body.lines().boxed())));
                    }
                    Ok(())
                }
            },
            Source::Events(events) => match events.next().await {
                Some(Ok(event)) => self.read(&event),
                None => self.finish(),
                // Everything is said, and only the goodbye is missing.
                Some(Err(_)) if self.answer.has_stopped() => self.finish(),
                Some(Err(EventStreamError::Transport(failure))) => Err(failure),
                Some(Err(EventStreamError::Utf8(_) | EventStreamError::Parser(_))) => {
                    Err(CallFailure::Broken("it is not the protocol"))
                }
            },
        }
    }

    fn read(&mut self, event: &Event) -> Result<(), CallFailure> {
        match event.data.trim() {
            "" => return Ok(()),
            "[DONE]" => self.answer.close(),
            json => {
                failed_midway(&event.event, json)?;
                self.dialect.read(json, &mut self.answer)?;
            }
        }
        if self.answer.is_closed() { self.finish() } else { Ok(()) }
    }

    /// The end; the connection is not needed any more.
    fn finish(&mut self) -> Result<(), CallFailure> {
        self.source = Source::Over;
        self.dialect.finish(&mut self.answer)?;
        self.answer.presume_done();
        self.answer.end()
    }
}

/// The same, and what they cost is kept, also of an answer that is given up.
pub struct BilledPieces<'a> {
    pieces: Pieces,
    cost: &'a mut CallCost,
}

impl<'a> BilledPieces<'a> {
    pub(super) const fn new(pieces: Pieces, cost: &'a mut CallCost) -> Self {
        Self { pieces, cost }
    }

    /// As [`Pieces::next`].
    pub async fn next(&mut self) -> Option<Result<Piece, CallFailure>> {
        let next = self.pieces.next().await?;
        match &next {
            Ok(piece) => self.cost.hear(piece, self.pieces.usage()),
            Err(_) => self.cost.fail(self.pieces.usage()),
        }
        Some(next)
    }

    /// What the call has cost until now.
    pub const fn cost(&self) -> &CallCost {
        self.cost
    }
}

fn failed_midway(event: &str, json: &str) -> Result<(), CallFailure> {
    midway(event, json).map_or(Ok(()), |error| Err(failure::midway(&error)))
}
