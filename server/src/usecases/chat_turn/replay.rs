//! Replays a turn that has ended before, from its stored answer, without a model call.

use anneal_core::message::Part;
use anneal_proto::{
    convert::{context::break_reason, usage::cache_state},
    v1 as pb,
};
use anneal_store::{Append, RecordedCall, StoredAnswer, TurnEnd};
use pb::chat_response::{Done, Event};

use super::{TurnError, TurnRun, answer::reasoning_end, stored_question::Question};
use crate::{failure::Failure, limits::content_budget::WithReservation};

/// A turn that has ended.
pub(super) struct Replay {
    /// The stored question.
    pub(super) question: Question,
    /// How it has ended.
    pub(super) end: EarlierEnd,
}

/// How a turn has ended that is repeated.
pub(super) enum EarlierEnd {
    /// With this answer.
    Answered(Box<WithReservation<StoredAnswer>>),
    /// It was stopped, and nothing of its answer is kept.
    Dropped,
}

impl TurnRun {
    /// The stored question of the turn with this request id, and how the turn has ended. None: the
    /// question is not stored, or the turn has not ended. Fails if one of their messages was
    /// withdrawn.
    pub(super) async fn find_replay(
        &self,
        prompt: Option<&Append>,
    ) -> Result<Option<Replay>, Failure> {
        let Some(question) = self.find_question(prompt).await? else {
            return Ok(None);
        };
        let end = self.find_earlier_end().await?;
        Ok(end.map(|end| Replay { question, end }))
    }

    /// How the turn with this request id has ended; None: it has not.
    pub(super) async fn find_earlier_end(&self) -> Result<Option<EarlierEnd>, Failure> {
        if let Some(answer) = self.find_answer().await? {
            return Ok(Some(EarlierEnd::Answered(Box::new(answer))));
        }
        let (store, request_id) = (&self.state.store, self.turn.answer_request_id());
        let end = store
            .find_turn_end(self.caller, self.turn.id, &request_id)
            .await?;
        Ok((end == Some(TurnEnd::Dropped)).then_some(EarlierEnd::Dropped))
    }

    /// The stored answer to the turn with this request id. Its append has a request id of its own
    /// (`answer_request_id`). None: no answer is stored.
    async fn find_answer(&self) -> Result<Option<WithReservation<StoredAnswer>>, Failure> {
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
    pub(super) async fn replay(&self, replay: Replay) -> Result<Done, TurnError> {
        let Replay { question, end } = replay;
        let is_replay = true;
        self.events
            .send(Event::Started(question.started(is_replay)))
            .await?;
        match end {
            EarlierEnd::Answered(answer) => self.replay_answer(&question, *answer).await,
            EarlierEnd::Dropped => Ok(Done {
                conversation_id: self.turn.id.to_string(),
                message_ids: question.ids(),
                token_estimate: self.read_token_total().await,
                stop_reason: pb::StopReason::Stopped.into(),
                stopped: true,
                replayed: true,
                ..Done::default()
            }),
        }
    }

    async fn replay_answer(
        &self,
        question: &Question,
        answer: WithReservation<StoredAnswer>,
    ) -> Result<Done, TurnError> {
        // Hold the reservation until every piece was sent.
        let WithReservation {
            answer: StoredAnswer { message, call },
            reservation: _reservation,
        } = answer;
        for event in message.parts.into_iter().flat_map(events) {
            self.events.send(event).await?;
        }
        let stop = call.as_ref().and_then(|call| call.stop_reason);
        let stop = if message.stopped {
            pb::StopReason::Stopped.into()
        } else {
            stop.map_or(0, i32::from)
        };
        Ok(Done {
            conversation_id: self.turn.id.to_string(),
            message_ids: question.ids().into_iter().chain([message.id.0]).collect(),
            answer_message_id: message.id.0,
            token_estimate: self.read_token_total().await,
            usage: call.as_ref().map(usage),
            cache: call.as_ref().and_then(cache_use),
            stop_reason: stop,
            stopped: message.stopped,
            model: call.map(|call| call.model).unwrap_or_default(),
            replayed: true,
            ..Done::default()
        })
    }
}

/// The events for a part of the answer: none, one or two.
fn events(part: Part) -> impl Iterator<Item = Event> {
    let end = reasoning_end(&part);
    let first = match part {
        Part::Text { text } => Some(Event::TextDelta(text)),
        Part::Reasoning { text, .. } => Some(Event::ReasoningDelta(text)),
        Part::ToolUse { id, name, input } => {
            Some(Event::ToolCall(pb::ToolUsePart { id, name, input }))
        }
        Part::ToolResult { .. } | Part::Media(_) => None,
    };
    first.into_iter().chain(end)
}

const fn usage(call: &RecordedCall) -> pb::ModelUsage {
    pb::ModelUsage {
        input_tokens: call.input.get(),
        cached_tokens: call.cached.get(),
        written_tokens: call.written.get(),
        output_tokens: call.output.get(),
        reasoning_tokens: 0,
    }
}

fn cache_use(call: &RecordedCall) -> Option<pb::CacheUse> {
    let cache = call.cache?;
    Some(pb::CacheUse {
        expected_tokens: cache.expected.get(),
        fresh_tokens: call.input.less(call.cached).less(call.written).get(),
        state: cache_state(cache.state).into(),
        break_reason: cache
            .break_reason
            .map_or(0, |reason| break_reason(reason).into()),
        long_written_tokens: cache.long_written.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_has_the_end_of_signed_reasoning_after_its_text() {
        let reasoning = |signature: &str| Part::Reasoning {
            text: "hm".into(),
            signature: signature.into(),
            provider: "anthropic".into(),
            redacted: false,
        };
        let end = pb::ReasoningPart {
            text: "hm".into(),
            signature: "s".into(),
            provider: "anthropic".into(),
            redacted: false,
        };
        let text = || Event::ReasoningDelta("hm".into());
        let signed: Vec<Event> = events(reasoning("s")).collect();
        assert_eq!(signed, [text(), Event::ReasoningEnd(end)]);
        assert_eq!(events(reasoning("")).collect::<Vec<_>>(), [text()]);
    }
}
