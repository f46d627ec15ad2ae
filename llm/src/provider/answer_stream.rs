//! The answer of a call as a stream of pieces.

use std::time::Instant;

use anneal_core::tokens::Tokens;
use eventsource_stream::{Event, EventStream, EventStreamError};
use futures::{StreamExt as _, stream::BoxStream};

use super::{
    Answer, CallCost, CallFailure, CallUsage, Piece,
    body::{Body, BodyFormat},
    failure,
    partial_answer::{PartialAnswer, ProtocolReader},
};
use crate::provider_error::{RequestSize, stream_error};

/// The pieces of an answer that is being received. Dropping it ends the call.
pub struct AnswerStream {
    source: Source,
    protocol: Box<dyn ProtocolReader>,
    answer: PartialAnswer,
    /// The size of the request.
    size: RequestSize,
}

enum Source {
    /// The body, until its format is known; a document stays here until all of it is read.
    Body(Box<Body>),
    /// The events of a body that is a stream.
    Events(Box<EventStream<BoxStream<'static, Result<String, CallFailure>>>>),
    /// The answer has ended or failed.
    Over,
}

impl AnswerStream {
    /// `least_sent_tokens`: as in [`Call`](super::Call).
    pub(super) fn new(
        body: Body,
        protocol: Box<dyn ProtocolReader>,
        least_sent_tokens: Option<Tokens>,
        size: RequestSize,
    ) -> Self {
        Self {
            source: Source::Body(Box::new(body)),
            protocol,
            answer: PartialAnswer::new(least_sent_tokens),
            size,
        }
    }

    /// Receives the next piece; None after [`Piece::End`] or a failure. The pieces before a failure
    /// are not an answer. Cancel safe: dropping the future loses no piece.
    pub async fn next(&mut self) -> Option<Result<Piece, CallFailure>> {
        loop {
            if let Some(piece) = self.answer.pop_piece() {
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

    /// Whether any bytes of the answer's body have arrived.
    fn has_begun(&self) -> bool {
        match &self.source {
            Source::Body(body) => body.has_begun(),
            Source::Events(_) | Source::Over => true,
        }
    }

    /// The provider's counts so far; zeros where it has reported none.
    pub(super) const fn usage(&self) -> CallUsage {
        self.answer.usage()
    }

    /// Makes one step: detects the format of the body and, if it is one document, reads all of it;
    /// or reads one event.
    async fn advance(&mut self) -> Result<(), CallFailure> {
        match &mut self.source {
            Source::Over => Ok(()),
            Source::Body(body) => match body.detect_format().await? {
                BodyFormat::Document => {
                    let json = body.read_to_end().await?;
                    check_for_error("", json, self.size)?;
                    self.protocol.read_whole(json, &mut self.answer)?;
                    self.answer.close();
                    self.finish()
                }
                BodyFormat::Events => {
                    if let Source::Body(body) = std::mem::replace(&mut self.source, Source::Over) {
                        self.source =
                            Source::Events(Box::new(EventStream::new(body.lines().boxed())));
                    }
                    Ok(())
                }
            },
            Source::Events(events) => match events.next().await {
                Some(Ok(event)) => self.read(&event),
                None => self.finish(),
                // The provider has said why the model stopped, so the answer is complete. Only the
                // mark of its end is missing.
                Some(Err(_)) if self.answer.has_stopped() => self.finish(),
                Some(Err(EventStreamError::Transport(failure))) => Err(failure),
                Some(Err(EventStreamError::Utf8(_) | EventStreamError::Parser(_))) => {
                    Err(CallFailure::Broken("it does not follow the protocol"))
                }
            },
        }
    }

    fn read(&mut self, event: &Event) -> Result<(), CallFailure> {
        match event.data.trim() {
            "" => return Ok(()),
            "[DONE]" => self.answer.close(),
            json => {
                check_for_error(&event.event, json, self.size)?;
                self.protocol.read(json, &mut self.answer)?;
            }
        }
        if self.answer.is_closed() {
            self.finish()
        } else {
            Ok(())
        }
    }

    /// Ends the answer and closes the connection.
    fn finish(&mut self) -> Result<(), CallFailure> {
        self.source = Source::Over;
        self.protocol.finish(&mut self.answer)?;
        self.answer.default_stop_to_done();
        self.answer.push_end()
    }
}

/// An [`AnswerStream`] that records the cost of the call, even if the call is abandoned.
pub struct BilledAnswerStream<'a> {
    pieces: AnswerStream,
    cost: &'a mut CallCost,
    first_piece: Option<Instant>,
}

impl<'a> BilledAnswerStream<'a> {
    pub(super) const fn new(pieces: AnswerStream, cost: &'a mut CallCost) -> Self {
        Self {
            pieces,
            cost,
            first_piece: None,
        }
    }

    /// As [`AnswerStream::next`].
    pub async fn next(&mut self) -> Option<Result<Piece, CallFailure>> {
        let next = self.pieces.next().await?;
        if self.first_piece.is_none() && !matches!(&next, Ok(Piece::End(_)) | Err(_)) {
            self.first_piece = Some(Instant::now());
        }
        match &next {
            Ok(piece) => self.cost.record_piece(piece, self.pieces.usage()),
            Err(_) => self.cost.record_failure(self.pieces.usage()),
        }
        Some(next)
    }

    /// Receives the whole answer, and returns it without tool calls and thoughts.
    pub async fn read_whole(&mut self) -> Result<Answer, CallFailure> {
        let mut text = String::new();
        while let Some(piece) = self.next().await {
            match piece? {
                Piece::Text(more) => text.push_str(&more),
                Piece::End(end) => return Ok(Answer { text, end }),
                Piece::Thought(_) | Piece::Reasoning(_) | Piece::ToolUse { .. } => {}
            }
        }
        Err(CallFailure::Broken("it ended without a stop reason"))
    }

    /// Whether any bytes of the answer's body have arrived.
    pub fn has_begun(&self) -> bool {
        self.pieces.has_begun()
    }

    /// When the first piece of the answer arrived: text, reasoning or a tool call. None: none has.
    pub const fn first_piece(&self) -> Option<Instant> {
        self.first_piece
    }

    /// The cost of the call so far.
    pub const fn cost(&self) -> &CallCost {
        self.cost
    }
}

fn check_for_error(event_name: &str, json: &str, size: RequestSize) -> Result<(), CallFailure> {
    let error = stream_error(event_name, json, size);
    error.map_or(Ok(()), |error| Err(failure::of_stream_error(&error)))
}
