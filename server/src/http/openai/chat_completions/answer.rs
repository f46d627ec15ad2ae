//! The events of a turn, as completions are made of them.

use std::{collections::VecDeque, time::Duration};

use anneal_proto::v1::{
    self as pb,
    chat_response::{Done, Event},
};
use futures::StreamExt as _;

use super::names::FieldNames;
use crate::{failure::Failure, http::openai::errors::ApiError, usecases::chat_turn::Events};

/// How long the head of a streamed answer waits for the first event of the model. Until then a
/// failure has an HTTP status of its own, after which clients repeat the request by themselves.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(10);

/// The events of a turn that has begun.
pub(super) struct AnswerEvents {
    events: Events,
    names: FieldNames,
    /// Whether a stored answer comes again.
    is_replay: bool,
    /// Events that were received and are still to be taken.
    waiting: VecDeque<Event>,
}

impl AnswerEvents {
    /// Waits until the turn has begun. Fails if it is refused.
    pub(super) async fn begin(events: Events, names: FieldNames) -> Result<Self, ApiError> {
        let mut begun = Self {
            events,
            names,
            is_replay: false,
            waiting: VecDeque::new(),
        };
        match begun.receive().await? {
            Event::Started(started) => begun.is_replay = started.replayed,
            // The turn was stopped before its question was stored.
            other => begun.waiting.push_back(other),
        }
        Ok(begun)
    }

    /// Whether a stored answer comes again. It may be the answer of another model.
    pub(super) const fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Waits for the first event of the model, but not long. Fails if the turn fails before.
    pub(super) async fn wait_for_model(&mut self) -> Result<(), ApiError> {
        if !self.waiting.is_empty() {
            return Ok(());
        }
        if let Ok(first) = tokio::time::timeout(FIRST_EVENT_WAIT, self.receive()).await {
            self.waiting.push_back(first?);
        }
        Ok(())
    }

    /// Waits until the turn has ended, and holds its events.
    pub(super) async fn wait_for_end(&mut self) -> Result<(), ApiError> {
        loop {
            let event = self.receive().await?;
            let is_last = matches!(event, Event::Done(_));
            self.waiting.push_back(event);
            if is_last {
                return Ok(());
            }
        }
    }

    /// The end of the turn, if it is among the events that are held.
    pub(super) fn known_end(&self) -> Option<&Done> {
        self.waiting.iter().find_map(|event| match event {
            Event::Done(done) => Some(done),
            _ => None,
        })
    }

    /// The next event. [`Event::Done`] or an error is the last one.
    pub(super) async fn next(&mut self) -> Result<Event, ApiError> {
        match self.waiting.pop_front() {
            Some(event) => Ok(event),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Event, ApiError> {
        loop {
            match self.events.next().await {
                Some(Ok(pb::ChatResponse { event: Some(event) })) => return Ok(event),
                Some(Ok(_)) => {}
                Some(Err(status)) => return Err(self.names.refusal(&status)),
                // A stream without an error ends with `Done`, unless its task has panicked.
                None => return Err(Failure::Panicked.into()),
            }
        }
    }
}
