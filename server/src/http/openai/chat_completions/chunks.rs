//! The chunks of a streamed answer: the objects `chat.completion.chunk`.

use anneal_proto::v1::chat_response::{Done, Event};
use serde_json::{Value, json};
use tonic::Status;

use super::completion::{Identity, finish_reason, show_call, show_usage};
use crate::http::openai::errors::ApiError;

/// Makes the chunks of one answer.
#[derive(Debug)]
pub(super) struct Chunks {
    identity: Identity,
    /// Whether the last chunk has the usage, and the others say that they have none.
    includes_usage: bool,
    /// Whether a piece of the answer was sent.
    has_content: bool,
    calls: usize,
}

impl Chunks {
    pub(super) const fn new(identity: Identity, includes_usage: bool) -> Self {
        Self {
            identity,
            includes_usage,
            has_content: false,
            calls: 0,
        }
    }

    /// The first chunk, which names the author.
    pub(super) fn first(&self) -> Value {
        self.chunk(
            &json!({"role": "assistant", "content": "", "refusal": null}),
            None,
        )
    }

    /// The chunks of an event. Fails if the answer cannot be sent to its end.
    pub(super) fn push(&mut self, event: Event) -> Result<Vec<Value>, ApiError> {
        match event {
            Event::TextDelta(text) if !text.is_empty() => {
                self.has_content = true;
                Ok(vec![self.chunk(&json!({ "content": text }), None)])
            }
            Event::ToolCall(call) => {
                let mut shown = show_call(&call);
                shown["index"] = self.calls.into();
                self.calls += 1;
                self.has_content = true;
                Ok(vec![self.chunk(&json!({ "tool_calls": [shown] }), None)])
            }
            // Chunks that were sent cannot be taken back.
            Event::Attempt(_) if self.has_content => Err(Status::unavailable(
                "the answer began again after a part of it was sent; send the request again",
            )
            .into()),
            Event::Done(done) => self.finish(&done),
            Event::Attempt(_)
            | Event::TextDelta(_)
            | Event::Started(_)
            | Event::ReasoningDelta(_)
            | Event::ReasoningEnd(_) => Ok(Vec::new()),
        }
    }

    fn finish(&self, done: &Done) -> Result<Vec<Value>, ApiError> {
        let reason = finish_reason(done, self.calls)?;
        let mut chunks = vec![self.chunk(&json!({}), Some(reason))];
        if let Some(usage) = done.usage.as_ref().filter(|_| self.includes_usage) {
            let mut last = self.identity.object("chat.completion.chunk", &json!([]));
            last["usage"] = show_usage(usage);
            chunks.push(last);
        }
        Ok(chunks)
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        let mut chunk = self
            .identity
            .object("chat.completion.chunk", &json!([choice]));
        if self.includes_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::v1 as pb;
    use pb::chat_response::Attempt;

    use super::*;

    fn text(text: &str) -> Event {
        Event::TextDelta(text.into())
    }

    fn call(id: &str) -> Event {
        Event::ToolCall(pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: "{}".into(),
        })
    }

    fn done() -> Done {
        Done {
            stop_reason: pb::StopReason::ToolUse.into(),
            usage: Some(pb::ModelUsage::default()),
            ..Done::default()
        }
    }

    fn chunks(includes_usage: bool) -> Chunks {
        Chunks::new(Identity::new("m".into()), includes_usage)
    }

    /// The deltas and the reasons of the chunks of these events.
    fn translate(chunks: &mut Chunks, events: Vec<Event>) -> Vec<Value> {
        let mut all = vec![chunks.first()];
        for event in events {
            all.extend(chunks.push(event).expect("can be sent"));
        }
        all
    }

    #[test]
    fn a_stream_begins_with_the_author_and_ends_with_the_reason_and_the_usage() {
        let events = vec![
            Event::Attempt(Attempt::default()),
            Event::ReasoningDelta("Hm.".into()),
            text("I "),
            text(""),
            text("look."),
            call("a"),
            call("b"),
            Event::Done(done()),
        ];
        let all = translate(&mut chunks(true), events);
        let (last, others) = all.split_last().expect("there are chunks");
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["total_tokens"], 0);
        let deltas: Vec<Value> = others
            .iter()
            .map(|chunk| chunk["choices"][0]["delta"].clone())
            .collect();
        let call = |index: usize, id: &str| {
            json!({"tool_calls": [{
                "index": index, "id": id, "type": "function",
                "function": {"name": "look", "arguments": "{}"},
            }]})
        };
        assert_eq!(
            deltas,
            [
                json!({"role": "assistant", "content": "", "refusal": null}),
                json!({"content": "I "}),
                json!({"content": "look."}),
                call(0, "a"),
                call(1, "b"),
                json!({}),
            ]
        );
        for (place, chunk) in others.iter().enumerate() {
            let expected = if place + 1 == others.len() {
                json!("tool_calls")
            } else {
                Value::Null
            };
            assert_eq!(chunk["choices"][0]["finish_reason"], expected);
            assert_eq!(chunk.get("usage"), Some(&Value::Null));
            assert_eq!(chunk["id"], last["id"]);
            assert_eq!(chunk["object"], "chat.completion.chunk");
        }
    }

    #[test]
    fn usage_is_sent_only_if_it_is_asked_for_and_known() {
        let all = translate(&mut chunks(false), vec![Event::Done(done())]);
        assert!(all.len() == 2 && all.iter().all(|chunk| chunk.get("usage").is_none()));
        let unknown = Event::Done(Done::default());
        assert_eq!(translate(&mut chunks(true), vec![unknown]).len(), 2);
    }

    #[test]
    fn an_answer_that_begins_again_after_a_part_was_sent_is_broken_off() {
        let mut chunks = chunks(false);
        translate(&mut chunks, vec![text("a")]);
        let refused = chunks.push(Event::Attempt(Attempt::default()));
        let refused = refused.expect_err("cannot be taken back");
        assert_eq!(refused.object()["type"], "server_error");
    }
}
