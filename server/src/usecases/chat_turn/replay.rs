//! Replays a turn that was answered before, from its stored answer, without a model call.

use anneal_core::message::Part;
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, RecordedCall, StoredAnswer};
use pb::chat_response::{Done, Event};

use super::{TurnError, TurnRun, check_stands, started};
use crate::{failure::Failure, limits::content_budget::WithReservation};

/// A turn that was answered.
pub(super) struct Replay {
    /// The stored prompt.
    pub(super) prompt: Appended,
    /// The stored answer.
    pub(super) answer: WithReservation<StoredAnswer>,
}

impl TurnRun {
    /// The stored prompt and answer of the turn with this request id. None: the prompt or its
    /// answer is not stored. Fails if one of their messages was withdrawn.
    pub(super) async fn find_replay(&self, prompt: &Append) -> Result<Option<Replay>, Failure> {
        let Some(stored) = self.state.store.find_append(self.caller, prompt).await? else {
            return Ok(None);
        };
        check_stands(&stored)?;
        Ok(self.find_answer().await?.map(|answer| Replay {
            prompt: stored,
            answer,
        }))
    }

    /// The stored answer to the turn with this request id. Its append has a request id of its own
    /// (`answer_request_id`). None: no answer is stored.
    pub(super) async fn find_answer(
        &self,
    ) -> Result<Option<WithReservation<StoredAnswer>>, Failure> {
        let request_id = self.turn.answer_request_id();
        let find = |read_budget| {
            let (store, caller, id, request_id) = (
                self.state.store.clone(),
                self.caller,
                self.turn.id,
                request_id.clone(),
            );
            async move {
                store
                    .find_answer(caller, id, &request_id, &read_budget)
                    .await
            }
        };
        let WithReservation {
            answer,
            reservation,
        } = self
            .state
            .content_budget
            .read(self.caller.tenant(), find)
            .await?;
        Ok(answer.map(|answer| WithReservation {
            answer,
            reservation,
        }))
    }

    /// Sends the start of the replay and the pieces of the stored answer. Returns the last event,
    /// which `begin` sends.
    pub(super) async fn replay(
        &self,
        Replay { prompt, answer }: Replay,
    ) -> Result<Done, TurnError> {
        // Hold the reservation until every piece was sent.
        let WithReservation {
            answer,
            reservation: _reservation,
        } = answer;
        let is_replay = true;
        self.events
            .send(Event::Started(started(&prompt, is_replay)))
            .await?;
        for event in answer.message.parts.into_iter().filter_map(event) {
            self.events.send(event).await?;
        }
        let ids = prompt
            .messages
            .iter()
            .map(|message| message.id)
            .chain([answer.message.id]);
        let usage = answer.call.as_ref().map(usage);
        let stop = answer
            .call
            .as_ref()
            .and_then(|call| call.stop_reason)
            .map_or(0, i32::from);
        Ok(Done {
            conversation_id: self.turn.id.to_string(),
            message_ids: ids.map(|id| id.0).collect(),
            answer_message_id: answer.message.id.0,
            token_estimate: self.read_token_total().await,
            usage,
            stop_reason: stop,
            model: answer.call.map(|call| call.model).unwrap_or_default(),
            replayed: true,
            ..Done::default()
        })
    }
}

/// The event for a part of the answer. None: such a part is not sent.
fn event(part: Part) -> Option<Event> {
    match part {
        Part::Text { text } => Some(Event::TextDelta(text)),
        Part::Reasoning { text, .. } => Some(Event::ReasoningDelta(text)),
        Part::ToolUse { id, name, input } => {
            Some(Event::ToolCall(pb::ToolUsePart { id, name, input }))
        }
        Part::ToolResult { .. } | Part::Media(_) => None,
    }
}

const fn usage(call: &RecordedCall) -> pb::ModelUsage {
    pb::ModelUsage {
        input_tokens: call.input.get(),
        cached_tokens: call.cached.get(),
        written_tokens: call.written.get(),
        output_tokens: call.output.get(),
    }
}
