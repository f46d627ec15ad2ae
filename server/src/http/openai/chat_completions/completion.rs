//! A whole answer: the object `chat.completion`.

use std::time::{SystemTime, UNIX_EPOCH};

use anneal_proto::v1::{
    self as pb,
    chat_response::{Done, Event},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::AnswerEvents;
use crate::http::openai::errors::ApiError;

/// The fields that identify an answer, in each of its objects.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    id: String,
    /// Seconds since 1970.
    created: u64,
    /// The model that answers.
    pub(super) model: String,
}

impl Identity {
    /// A new identity of an answer of this model.
    pub(super) fn new(model: String) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("chatcmpl-{}", Uuid::new_v4().as_simple()),
            created: since_1970.map_or(0, |since_1970| since_1970.as_secs()),
            model,
        }
    }

    /// The identity with the model that the end of the turn names. It names none if an answer comes
    /// again whose figures were not recorded.
    pub(super) fn with_model_of(mut self, done: &Done) -> Self {
        if !done.model.is_empty() {
            self.model.clone_from(&done.model);
        }
        self
    }

    /// An object of this type with these choices.
    pub(super) fn object(&self, kind: &str, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

/// Reads the events to their end, and makes the whole answer of them.
pub(super) async fn collect(
    events: &mut AnswerEvents,
    identity: Identity,
) -> Result<Value, ApiError> {
    let mut answer = Answer::default();
    loop {
        match events.next().await? {
            Event::Done(done) => return answer.show(&identity.with_model_of(&done), &done),
            event => answer.push(event),
        }
    }
}

/// The answer so far.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    calls: Vec<pb::ToolUsePart>,
}

impl Answer {
    fn push(&mut self, event: Event) {
        match event {
            Event::TextDelta(text) => self.text.push_str(&text),
            Event::ToolCall(call) => self.calls.push(call),
            // Another answer follows.
            Event::Attempt(_) => *self = Self::default(),
            Event::Started(_)
            | Event::ReasoningDelta(_)
            | Event::ReasoningEnd(_)
            | Event::Done(_) => {}
        }
    }

    fn show(self, identity: &Identity, done: &Done) -> Result<Value, ApiError> {
        let finish_reason = finish_reason(done, self.calls.len())?;
        let has_content = !self.text.is_empty() || self.calls.is_empty();
        let mut message = json!({
            "role": "assistant",
            "content": has_content.then_some(self.text),
            "refusal": null,
            "annotations": [],
        });
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(show_call);
            message["tool_calls"] = calls.collect();
        }
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        let mut object = identity.object("chat.completion", &json!([choice]));
        if let Some(usage) = &done.usage {
            object["usage"] = show_usage(usage);
        }
        Ok(object)
    }
}

/// A call as it is shown.
pub(super) fn show_call(call: &pb::ToolUsePart) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.input},
    })
}

/// The tokens of the model call.
pub(super) fn show_usage(usage: &pb::ModelUsage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

/// Why the answer ends. Fails if the turn was stopped: the protocol has no reason for that.
pub(super) fn finish_reason(done: &Done, calls: usize) -> Result<&'static str, ApiError> {
    if done.stopped {
        let message = "The turn was stopped by another request before its answer was complete.";
        return Err(ApiError::conflict("turn_stopped", message));
    }
    Ok(match done.stop_reason() {
        pb::StopReason::OutputLimit => "length",
        pb::StopReason::Filtered => "content_filter",
        _ if calls > 0 => "tool_calls",
        _ => "stop",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> pb::ToolUsePart {
        pb::ToolUsePart {
            id: "c".into(),
            name: "look".into(),
            input: "{}".into(),
        }
    }

    fn shown(events: Vec<Event>, done: &Done) -> Value {
        let mut answer = Answer::default();
        for event in events {
            answer.push(event);
        }
        let identity = Identity::new("asked".into()).with_model_of(done);
        answer.show(&identity, done).expect("was not stopped")
    }

    #[test]
    fn an_answer_has_its_last_attempt_its_model_and_the_usage_of_the_provider() {
        let done = Done {
            model: "m".into(),
            stop_reason: pb::StopReason::Done.into(),
            usage: Some(pb::ModelUsage {
                input_tokens: 10,
                cached_tokens: 4,
                written_tokens: 3,
                output_tokens: 5,
                reasoning_tokens: 2,
            }),
            ..Done::default()
        };
        let events = vec![
            Event::TextDelta("Void.".into()),
            Event::Attempt(pb::chat_response::Attempt::default()),
            Event::ReasoningDelta("Hm.".into()),
            Event::TextDelta("Hel".into()),
            Event::TextDelta("lo.".into()),
        ];
        let object = shown(events, &done);
        let id = object["id"].as_str().expect("an id");
        assert!(id.starts_with("chatcmpl-") && id.len() == 41, "{id}");
        assert_eq!(
            (&object["object"], &object["model"]),
            (&json!("chat.completion"), &json!("m"))
        );
        assert_eq!(
            object["choices"],
            json!([{
                "index": 0,
                "message": {"role": "assistant", "content": "Hello.", "refusal": null, "annotations": []},
                "logprobs": null,
                "finish_reason": "stop",
            }])
        );
        assert_eq!(
            object["usage"],
            json!({
                "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            })
        );
    }

    #[test]
    fn an_answer_of_calls_alone_has_no_content_and_an_unknown_usage_is_left_out() {
        let object = shown(vec![Event::ToolCall(call())], &Done::default());
        assert_eq!(object["model"], "asked");
        assert_eq!(object.get("usage"), None);
        let choice = &object["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], Value::Null);
        assert_eq!(
            choice["message"]["tool_calls"],
            json!([{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}])
        );
        let empty = shown(Vec::new(), &Done::default());
        assert_eq!(empty["choices"][0]["message"]["content"], "");
    }

    #[test]
    fn an_answer_ends_for_the_reason_of_the_model() {
        let done = |reason: pb::StopReason| Done {
            stop_reason: reason.into(),
            ..Done::default()
        };
        for (reason, calls, expected) in [
            (pb::StopReason::Done, 0, "stop"),
            (pb::StopReason::ToolUse, 1, "tool_calls"),
            (pb::StopReason::Done, 1, "tool_calls"),
            (pb::StopReason::OutputLimit, 1, "length"),
            (pb::StopReason::Filtered, 0, "content_filter"),
        ] {
            assert_eq!(finish_reason(&done(reason), calls), Ok(expected));
        }
        let stopped = Done {
            stopped: true,
            ..done(pb::StopReason::Stopped)
        };
        let refused = finish_reason(&stopped, 0).expect_err("is no answer");
        assert_eq!(
            (refused.status(), refused.code()),
            (409, Some("turn_stopped"))
        );
    }
}
