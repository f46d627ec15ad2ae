//! A turn that was answered before, told again without calling anybody.

use anneal_core::message::Part;
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, RecordedCall, StoredAnswer};
use pb::chat_response::{Done, Event};

use super::{Ended, Run, started};
use crate::{content::Holding, status::Failure};

/// A turn that was answered.
pub(super) struct Replay {
    /// What was said.
    pub(super) stored: Appended,
    /// What was answered.
    pub(super) answer: Holding<StoredAnswer>,
}

impl Run {
    /// The stored answer to this request; None: there is none yet.
    pub(super) async fn find_replay(&self, asked: &Append) -> Result<Option<Replay>, Failure> {
        let Some(stored) = self.house.store.find_append(self.caller, asked).await? else { return Ok(None) };
        Ok(self.answer_to_this().await?.map(|answer| Replay { stored, answer }))
    }

    /// The answer that is stored under this request.
    pub(super) async fn answer_to_this(&self) -> Result<Option<Holding<StoredAnswer>>, Failure> {
        let request_id = self.turn.answer_id();
        let find = |room| {
            let (store, caller, id, request_id) =
                (self.house.store.clone(), self.caller, self.turn.id, request_id.clone());
            async move { store.find_answer(caller, id, &request_id, &room).await }
        };
        let Holding { answer, reservation } = self.house.content.read(self.caller.tenant(), find).await?;
        Ok(answer.map(|answer| Holding { answer, reservation }))
    }

    /// Tells it.
    pub(super) async fn told(&self, Replay { stored, answer }: Replay) -> Result<Done, Ended> {
        let Holding { answer, reservation: _reservation } = answer;
        self.outlet.send(Event::Started(started(&stored, true))).await?;
        for event in answer.message.parts.into_iter().filter_map(event) {
            self.outlet.send(event).await?;
        }
        let ids = stored.messages.iter().map(|message| message.id).chain([answer.message.id]);
        let usage = answer.call.as_ref().map(usage);
        let stop = answer.call.as_ref().and_then(|call| call.stop_reason).map_or(0, i32::from);
        Ok(Done {
            conversation_id: self.turn.id.to_string(),
            message_ids: ids.map(|id| id.0).collect(),
            answer_message_id: answer.message.id.0,
            token_estimate: self.token_estimate().await,
            usage,
            stop_reason: stop,
            model: answer.call.map(|call| call.model).unwrap_or_default(),
            attempts: 0,
            replayed: true,
        })
    }
}

/// What a caller saw of a part.
fn event(part: Part) -> Option<Event> {
    match part {
        Part::Text { text } => Some(Event::TextDelta(text)),
        Part::Reasoning { text, .. } => Some(Event::ReasoningDelta(text)),
        Part::ToolUse { id, name, input } => Some(Event::ToolCall(pb::ToolUsePart { id, name, input })),
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
