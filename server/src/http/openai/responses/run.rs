//! A response whose events are read: while its turn runs here, while it runs elsewhere, or after
//! its end.

use std::time::Duration;

use anneal_core::message::MessageId;
use anneal_proto::v1::{self as pb, chat_response::Event, part::Part};
use futures::StreamExt as _;
use serde_json::Value;

use super::{
    events::{ItemIds, Piece, Translator},
    outcome::{Outcome, Status, Storage, TurnEnd},
    record::{Record, Settled},
    tools::CheckedCalls,
};
use crate::{
    failure::Failure,
    http::{
        openai::errors::ApiError,
        resumable_turns::{TurnDone, TurnEvent, TurnReader},
    },
    usecases::chat_turn::Events,
};

/// Time between two looks at a turn that runs on another server.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// A response of which nothing is stored: what a next one continues.
#[derive(Debug, Clone)]
pub(in crate::http) struct UnstoredHistory {
    /// The id of the response.
    pub(in crate::http) response_id: String,
    /// Its input and its output, with what came before.
    pub(in crate::http) messages: Vec<pb::NewMessage>,
}

/// A response whose events are read.
pub(in crate::http) struct RunningResponse {
    id: String,
    translator: Translator,
    source: Source,
    /// None: nothing of the response is stored.
    record: Option<Record>,
    /// The calls of the answer.
    calls: CheckedCalls,
    /// Why the turn has failed.
    failure: Option<ApiError>,
    /// The input, and then the answer, of a response of which nothing is stored.
    messages: Vec<pb::NewMessage>,
    answer: Vec<pb::Part>,
    pub(super) ignored: Vec<String>,
    /// Whether the response was begun before this request.
    pub(super) is_joined: bool,
    role: ReaderRole,
}

/// For whom events are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReaderRole {
    /// For a client that gets them as they come.
    Client,
    /// For a client that gets the whole response at its end.
    Collector,
    /// To store what becomes of the response.
    Recorder,
}

/// Where the answer comes from.
enum Source {
    /// A turn that runs here.
    Turn(Box<TurnReader>),
    /// The store, once the turn has ended.
    Store,
    /// A turn of which nothing is stored.
    Unstored(Events),
    /// Nothing more comes.
    Over,
}

impl RunningResponse {
    /// A reader of a stored response, from the events after this position. `reader`: of its turn,
    /// if that runs here.
    pub(super) fn of_record(
        record: Record,
        reader: Option<TurnReader>,
        after: Option<u64>,
    ) -> Self {
        let next = MessageId(record.row.after_message_id.0 + 2);
        let ids = ItemIds::Stored(
            record.row.conversation_id,
            record.row.answer_message_id.unwrap_or(next),
        );
        Self {
            id: record.id(),
            calls: CheckedCalls::new(record.shown.tool_rule()),
            translator: Translator::new(record.shown.clone(), ids, after),
            source: reader.map_or(Source::Store, |reader| {
                Source::Turn(Box::new(reader.with_reasoning_parts()))
            }),
            record: Some(record),
            failure: None,
            messages: Vec::new(),
            answer: Vec::new(),
            ignored: Vec::new(),
            is_joined: false,
            role: ReaderRole::Client,
        }
    }

    /// A reader of a turn of which nothing is stored, with this input and what came before it.
    pub(super) fn of_unstored(
        id: String,
        translator: Translator,
        events: Events,
        messages: Vec<pb::NewMessage>,
    ) -> Self {
        Self {
            id,
            calls: CheckedCalls::new(translator.shown().tool_rule()),
            translator,
            source: Source::Unstored(events),
            record: None,
            failure: None,
            messages,
            answer: Vec::new(),
            ignored: Vec::new(),
            is_joined: false,
            role: ReaderRole::Client,
        }
    }

    /// Reads to the end, so that what becomes of the response is stored whoever else reads it.
    pub(super) async fn record(mut self) {
        self.role = ReaderRole::Recorder;
        while self.next().await.is_some() {}
    }

    /// The names of the parameters that were ignored, because they are unknown.
    pub(in crate::http) fn ignored_parameters(&self) -> &[String] {
        &self.ignored
    }

    /// Whether the response runs in the background.
    pub(super) fn is_background(&self) -> bool {
        self.translator.shown().is_background()
    }

    /// The next event. None: the last was returned before. A future of this function that is
    /// dropped may lose an event.
    pub(in crate::http) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.translator.take_event() {
                return Some(event);
            }
            match &mut self.source {
                Source::Over => return None,
                Source::Turn(reader) => match reader.next().await {
                    Some((_, event)) => self.take(event).await,
                    // The log of the turn was discarded.
                    None => self.source = Source::Store,
                },
                Source::Unstored(events) => {
                    let event = match events.next().await {
                        Some(Ok(response)) => response.event,
                        Some(Err(status)) => {
                            self.fail(status.into()).await;
                            continue;
                        }
                        None => {
                            self.fail(Failure::Panicked.into()).await;
                            continue;
                        }
                    };
                    if let Some(event) = event {
                        self.take_event(event).await;
                    }
                }
                Source::Store => {
                    if let Err(error) = self.follow_store().await {
                        self.break_off(error);
                    }
                }
            }
        }
    }

    /// Reads to the end. Returns the response object; fails if the turn has failed.
    pub(in crate::http) async fn into_response_object(mut self) -> Result<Value, ApiError> {
        self.role = ReaderRole::Collector;
        while self.next().await.is_some() {}
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let Some(record) = &mut self.record
            && let ItemIds::Stored(_, message) = self.translator.ids()
            && record.row.answer_message_id.is_some_and(|id| id != message)
        {
            // Another client has stored a message while the turn ran, so the items have other ids.
            return record.object().await;
        }
        let ended = self.translator.into_ended();
        ended.ok_or_else(|| Failure::Panicked.into())
    }

    /// The response object of a response in the background: as it is now, if an earlier create has
    /// begun it, and otherwise as it begins.
    pub(super) async fn show_background(&mut self) -> Result<Value, ApiError> {
        match &mut self.record {
            Some(record) if self.is_joined => record.object().await,
            _ => Ok(self.translator.shown().running(Status::Queued)),
        }
    }

    /// What a next response over the same connection continues. None: the response is stored, or
    /// has not completed.
    pub(in crate::http) fn history(&self) -> Option<UnstoredHistory> {
        if self.record.is_some() || self.failure.is_some() || !matches!(self.source, Source::Over) {
            return None;
        }
        let mut messages = self.messages.clone();
        if !self.answer.is_empty() {
            messages.push(pb::NewMessage {
                role: pb::Role::Assistant.into(),
                parts: self.answer.clone(),
                ..pb::NewMessage::default()
            });
        }
        Some(UnstoredHistory {
            response_id: self.id.clone(),
            messages,
        })
    }

    async fn take_event(&mut self, event: Event) {
        let event = match event {
            Event::TextDelta(text) => return self.push(Piece::Text(text)),
            Event::ReasoningEnd(part) => return self.push(Piece::Reasoning(part)),
            Event::ToolCall(call) => return self.push_call(call),
            Event::Started(_) | Event::ReasoningDelta(_) => return,
            Event::Attempt(attempt) => TurnEvent::Attempt(attempt.into()),
            Event::Done(done) => TurnEvent::Done(done.into()),
        };
        self.take(event).await;
    }

    async fn take(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Started(started) => {
                if let Some(record) = &mut self.record
                    && let Some(last) = started.message_ids.last()
                {
                    let last = MessageId(*last);
                    record.row.question_last_id = Some(last);
                    if self.role == ReaderRole::Recorder {
                        record.note_question(last).await;
                    }
                    let ids = ItemIds::Stored(record.row.conversation_id, last.next());
                    self.translator.set_ids(ids);
                }
            }
            TurnEvent::Text(delta) => self.push(Piece::Text(delta.text)),
            TurnEvent::ReasoningEnd(part) => self.push(Piece::Reasoning(part)),
            TurnEvent::ToolCall(call) => self.push_call(pb::ToolUsePart {
                id: call.id,
                name: call.name,
                input: call.input,
            }),
            // Only signed reasoning is stored, which comes as a part.
            TurnEvent::Reasoning(_) => {}
            TurnEvent::Attempt(_) => self.begin_anew(),
            TurnEvent::Done(done) => self.end_turn(&done).await,
            TurnEvent::Error(failed) => self.fail(failed.problem.into()).await,
        }
    }

    /// Forgets the answer, which begins anew.
    fn begin_anew(&mut self) {
        if self.translator.has_pieces() {
            match self.role {
                // Events that were sent cannot be taken back.
                ReaderRole::Client => {
                    let error = ApiError::from(Failure::TurnLost);
                    return self.break_off(error.with_code("response_begun_anew"));
                }
                ReaderRole::Collector | ReaderRole::Recorder => self.translator.restart(),
            }
        }
        self.answer.clear();
        self.calls.clear();
    }

    fn push(&mut self, piece: Piece) {
        if self.calls.refusal().is_some() {
            return;
        }
        if self.record.is_none() {
            self.keep(&piece);
        }
        self.translator.push(piece);
    }

    fn push_call(&mut self, call: pb::ToolUsePart) {
        if self.calls.add(&call.name) {
            self.push(Piece::Call(call));
        }
    }

    /// Keeps a piece for the history of a response of which nothing is stored.
    fn keep(&mut self, piece: &Piece) {
        let part = match piece.clone() {
            Piece::Text(text) => {
                if let Some(Part::Text(last)) =
                    self.answer.last_mut().and_then(|last| last.part.as_mut())
                {
                    last.text.push_str(&text);
                    return;
                }
                Part::Text(pb::TextPart { text })
            }
            Piece::Reasoning(part) => Part::Reasoning(part),
            Piece::Call(call) => Part::ToolUse(call),
        };
        self.answer.push(pb::Part { part: Some(part) });
    }

    async fn end_turn(&mut self, done: &TurnDone) {
        let end = TurnEnd::from(done);
        let storage = match self.record {
            Some(_) => Storage::Stored,
            None => Storage::Unstored,
        };
        let outcome = Outcome::of_turn(&end, &self.calls, storage);
        self.end(end.answer, outcome).await;
    }

    async fn fail(&mut self, error: ApiError) {
        let outcome = Outcome::failed(&error);
        self.failure = Some(error);
        self.end(None, outcome).await;
    }

    /// Stores the end and makes the last event.
    async fn end(&mut self, answer: Option<MessageId>, mut outcome: Outcome) {
        self.source = Source::Over;
        if !outcome.status.has_output() {
            outcome.position = Some(self.translator.position());
        }
        if let Some(record) = &mut self.record {
            match record.end(answer, outcome).await {
                Ok(stored) => outcome = stored,
                Err(error) => return self.break_off(error),
            }
        }
        self.translator.finish(&outcome);
    }

    fn break_off(&mut self, error: ApiError) {
        self.source = Source::Over;
        self.translator.break_off(&error);
        self.failure = Some(error);
    }

    /// Makes the events of a response that has ended, after those that were made already; or waits
    /// a while.
    async fn follow_store(&mut self) -> Result<(), ApiError> {
        let Some(record) = &mut self.record else {
            self.source = Source::Over;
            return Ok(());
        };
        let outcome = match record.settle().await? {
            Settled::Ended(outcome) => outcome,
            Settled::Running(_) => {
                tokio::time::sleep(LOOK_INTERVAL).await;
                return record.reload().await;
            }
        };
        self.source = Source::Over;
        self.translator.restart();
        if let Some(answer) = record.row.answer_message_id {
            let ids = ItemIds::Stored(record.row.conversation_id, answer);
            self.translator.set_ids(ids);
        }
        if outcome.status.has_output()
            && let Some(answer) = record.load_answer().await?
        {
            for piece in Piece::of_parts(answer.parts) {
                self.translator.push(piece);
            }
        }
        self.translator.finish(&outcome);
        Ok(())
    }
}
