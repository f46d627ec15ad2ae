//! The answer of a turn as a UI message stream: one step in one message. The events of a turn are
//! complete in themselves; chunks of text and reasoning stand between a beginning and an end.

use std::collections::VecDeque;

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_store::TurnKey;
use axum::{
    http::{HeaderName, HeaderValue},
    response::{Response, sse::Event},
};
use futures::stream;
use serde_json::value::RawValue;

use super::{
    chunk::{AnswerMetadata, Chunk, ConversationMetadata, TokenUsage},
    ids::AnswerId,
};
use crate::http::{
    chat::TurnStream,
    message::ToolUse,
    resumable_turns::{TurnDone, TurnEvent, TurnUsage},
    sse,
};

/// The header by which the AI SDK's own servers name the protocol.
const PROTOCOL: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");
/// The data of the last event.
const END: &str = "[DONE]";

/// The message of the client that an answer becomes.
#[derive(Debug)]
pub(super) struct AnswerMessage {
    conversation: ConversationId,
    /// The message that it continues. None: it is a message of its own.
    continues: Option<String>,
}

impl AnswerMessage {
    pub(super) const fn new(conversation: ConversationId, continues: Option<String>) -> Self {
        Self {
            conversation,
            continues,
        }
    }

    /// The id of the message that answers the question with these stored messages.
    fn id(&self, question: &[i64], turn: TurnKey) -> String {
        self.continues.clone().unwrap_or_else(|| {
            let last = question.last().copied().unwrap_or_default();
            AnswerId::of_turn(self.conversation, last, turn).to_string()
        })
    }
}

/// The chunks of a turn, as an answer.
pub(super) fn response(turn_stream: TurnStream, answer: AnswerMessage) -> Response {
    let state = ChunkStream {
        turn_stream,
        translator: Translator::new(answer),
        pending: VecDeque::new(),
        progress: Progress::Running,
    };
    let events = stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        Some((event, state))
    });
    let mut response = sse::response(events);
    let version = HeaderValue::from_static("v1");
    response.headers_mut().insert(PROTOCOL, version);
    response
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Running,
    /// The turn has no more events.
    TurnEnded,
    Complete,
}

/// The chunks for one client.
struct ChunkStream {
    turn_stream: TurnStream,
    translator: Translator,
    /// Chunks of the last event that are not sent yet.
    pending: VecDeque<Chunk>,
    progress: Progress,
}

impl ChunkStream {
    async fn next(&mut self) -> Option<Result<Event, axum::Error>> {
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                return Some(Event::default().json_data(chunk));
            }
            match self.progress {
                Progress::Running => {}
                Progress::TurnEnded => {
                    self.progress = Progress::Complete;
                    return Some(Ok(Event::default().data(END)));
                }
                Progress::Complete => return None,
            }
            let event = self.turn_stream.next().await;
            let turn = self.turn_stream.turn();
            let chunks = match event {
                Some((_, event)) => self.translator.translate(event, turn),
                None => self.translator.break_off(),
            };
            self.pending.extend(chunks);
            if self.translator.has_ended {
                self.progress = Progress::TurnEnded;
            }
        }
    }
}

/// A part that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

/// Makes the chunks of the events of a turn.
#[derive(Debug)]
struct Translator {
    answer: AnswerMessage,
    open: Option<OpenPart>,
    /// How many parts were begun. The number of the last one is its id.
    parts: usize,
    /// Whether a chunk of the answer itself was made.
    has_content: bool,
    has_ended: bool,
}

impl Translator {
    const fn new(answer: AnswerMessage) -> Self {
        Self {
            answer,
            open: None,
            parts: 0,
            has_content: false,
            has_ended: false,
        }
    }

    /// The chunks of an event. `turn`: the turn that it belongs to, if that is known.
    fn translate(&mut self, event: TurnEvent, turn: Option<TurnKey>) -> Vec<Chunk> {
        match event {
            TurnEvent::Started(started) => {
                let turn = turn.unwrap_or(TurnKey::Message(MessageId::NONE));
                let message_id = self.answer.id(&started.message_ids, turn);
                let message_metadata = ConversationMetadata {
                    conversation_id: started.session_id,
                };
                let start = Chunk::Start {
                    message_id,
                    message_metadata,
                };
                vec![start, Chunk::StartStep]
            }
            TurnEvent::Text(delta) => self.write(OpenPart::Text, delta.text),
            TurnEvent::Reasoning(delta) => self.write(OpenPart::Reasoning, delta.text),
            TurnEvent::ToolCall(call) => self.call(call),
            // The client cannot take back what it has. In a new stream it gets the other answer.
            TurnEvent::Attempt(_) if self.has_content => {
                self.fail("The answer begins again. Load the chat again to follow it.")
            }
            // This reader does not ask for ends of reasoning.
            TurnEvent::Attempt(_) | TurnEvent::ReasoningEnd(_) => Vec::new(),
            TurnEvent::Done(done) => self.finish(done),
            TurnEvent::Error(failed) => self.fail(failed.problem.detail()),
        }
    }

    /// The chunks of a turn whose events end before its end: the log of the turn was discarded.
    fn break_off(&mut self) -> Vec<Chunk> {
        self.fail("The connection to the answer has ended. Load the chat again to follow it.")
    }

    fn fail(&mut self, reason: &str) -> Vec<Chunk> {
        self.has_ended = true;
        let error_text = reason.to_owned();
        vec![Chunk::Error { error_text }]
    }

    /// More of a part, which begins if it is not open.
    fn write(&mut self, part: OpenPart, delta: String) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        self.has_content = true;
        if self.open != Some(part) {
            chunks.extend(self.end_part());
            self.open = Some(part);
            self.parts += 1;
            let id = self.parts.to_string();
            chunks.push(match part {
                OpenPart::Text => Chunk::TextStart { id },
                OpenPart::Reasoning => Chunk::ReasoningStart { id },
            });
        }
        let id = self.parts.to_string();
        chunks.push(match part {
            OpenPart::Text => Chunk::TextDelta { id, delta },
            OpenPart::Reasoning => Chunk::ReasoningDelta { id, delta },
        });
        chunks
    }

    /// The end of the open part.
    fn end_part(&mut self) -> Option<Chunk> {
        let id = self.parts.to_string();
        Some(match self.open.take()? {
            OpenPart::Text => Chunk::TextEnd { id },
            OpenPart::Reasoning => Chunk::ReasoningEnd { id },
        })
    }

    /// A whole call.
    fn call(&mut self, call: ToolUse) -> Vec<Chunk> {
        self.has_content = true;
        let ToolUse { id, name, input } = call;
        let mut chunks: Vec<Chunk> = self.end_part().into_iter().collect();
        chunks.push(Chunk::ToolInputStart {
            tool_call_id: id.clone(),
            tool_name: name.clone(),
        });
        if !input.is_empty() {
            chunks.push(Chunk::ToolInputDelta {
                tool_call_id: id.clone(),
                input_text_delta: input.clone(),
            });
        }
        // A model may call a tool without any input.
        let json = if input.trim().is_empty() {
            "{}"
        } else {
            &input
        };
        chunks.push(match RawValue::from_string(json.to_owned()) {
            Ok(input) => Chunk::ToolInputAvailable {
                tool_call_id: id,
                tool_name: name,
                input,
            },
            Err(error) => Chunk::ToolInputError {
                tool_call_id: id,
                tool_name: name,
                input,
                error_text: format!("the input is not JSON: {error}"),
            },
        });
        chunks
    }

    fn finish(&mut self, done: TurnDone) -> Vec<Chunk> {
        self.has_ended = true;
        let mut chunks: Vec<Chunk> = self.end_part().into_iter().collect();
        chunks.push(Chunk::FinishStep);
        if done.stopped {
            chunks.push(Chunk::Abort);
            return chunks;
        }
        chunks.push(Chunk::Finish {
            finish_reason: done.stop_reason.as_deref().map(finish_reason),
            message_metadata: AnswerMetadata {
                conversation_id: done.session_id,
                message_id: (done.answer_message_id > 0).then_some(done.answer_message_id),
                model: Some(done.model).filter(|model| !model.is_empty()),
                usage: done.usage.map(TokenUsage::from),
            },
        });
        chunks
    }
}

/// The name that the AI SDK has for a stop reason.
fn finish_reason(stop_reason: &str) -> &'static str {
    match stop_reason {
        "done" => "stop",
        "tool_use" => "tool-calls",
        "output_limit" => "length",
        "filtered" => "content-filter",
        _ => "other",
    }
}

impl From<TurnUsage> for TokenUsage {
    fn from(usage: TurnUsage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            cached_input_tokens: usage.cached_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::v1::{self as pb, chat_response::Done};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::http::resumable_turns::{Delta, TurnFailed, TurnStarted};

    const TURN: Option<TurnKey> = Some(TurnKey::Message(MessageId(3)));

    fn conversation() -> ConversationId {
        ConversationId(Uuid::from_u128(5))
    }

    fn translate(continues: Option<&str>, turn: Option<TurnKey>, events: Vec<TurnEvent>) -> Value {
        let answer = AnswerMessage::new(conversation(), continues.map(str::to_owned));
        let mut translator = Translator::new(answer);
        let chunks = events
            .into_iter()
            .flat_map(|event| translator.translate(event, turn))
            .collect::<Vec<_>>();
        serde_json::to_value(chunks).expect("chunks are JSON")
    }

    fn started() -> TurnEvent {
        TurnEvent::Started(TurnStarted {
            session_id: "conversation".into(),
            message_ids: vec![2, 3],
            ..TurnStarted::default()
        })
    }

    fn text(text: &str) -> TurnEvent {
        TurnEvent::Text(Delta { text: text.into() })
    }

    fn done(done: Done) -> TurnEvent {
        TurnEvent::Done(done.into())
    }

    fn call(input: &str) -> TurnEvent {
        TurnEvent::ToolCall(
            pb::ToolUsePart {
                id: "c".into(),
                name: "look".into(),
                input: input.into(),
            }
            .into(),
        )
    }

    #[test]
    fn parts_stand_between_their_beginning_and_their_end_and_no_key_is_null() {
        let reasoning = TurnEvent::Reasoning(Delta { text: "hm".into() });
        let usage = pb::ModelUsage {
            input_tokens: 10,
            cached_tokens: 4,
            written_tokens: 0,
            output_tokens: 2,
            reasoning_tokens: 0,
        };
        let end = Done {
            conversation_id: "conversation".into(),
            answer_message_id: 4,
            usage: Some(usage),
            stop_reason: pb::StopReason::ToolUse.into(),
            model: "m".into(),
            ..Done::default()
        };
        let events = vec![
            started(),
            reasoning,
            text("a"),
            text("b"),
            call(r#"{"q":1.50}"#),
            text("c"),
            done(end),
        ];
        let id = format!("ui_{}_3", conversation().0.simple());
        assert_eq!(
            translate(None, TURN, events),
            json!([
                {"type": "start", "messageId": id, "messageMetadata": {"conversationId": "conversation"}},
                {"type": "start-step"},
                {"type": "reasoning-start", "id": "1"},
                {"type": "reasoning-delta", "id": "1", "delta": "hm"},
                {"type": "reasoning-end", "id": "1"},
                {"type": "text-start", "id": "2"},
                {"type": "text-delta", "id": "2", "delta": "a"},
                {"type": "text-delta", "id": "2", "delta": "b"},
                {"type": "text-end", "id": "2"},
                {"type": "tool-input-start", "toolCallId": "c", "toolName": "look"},
                {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{\"q\":1.50}"},
                {"type": "tool-input-available", "toolCallId": "c", "toolName": "look", "input": {"q": 1.5}},
                {"type": "text-start", "id": "3"},
                {"type": "text-delta", "id": "3", "delta": "c"},
                {"type": "text-end", "id": "3"},
                {"type": "finish-step"},
                {"type": "finish", "finishReason": "tool-calls", "messageMetadata": {
                    "conversationId": "conversation", "messageId": 4, "model": "m",
                    "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12, "cachedInputTokens": 4},
                }},
            ])
        );
    }

    #[test]
    fn an_end_of_which_nothing_was_recorded_has_no_keys_without_values() {
        let chunks = translate(None, TURN, vec![started(), done(Done::default())]);
        let end = json!({"type": "finish", "messageMetadata": {"conversationId": ""}});
        assert_eq!(chunks[3], end);
    }

    #[test]
    fn answers_are_named_by_their_question_and_continued_ones_by_the_client() {
        let anew = Some(TurnKey::Anew(9));
        let id = |continues, turn| {
            let chunks = translate(continues, turn, vec![started()]);
            chunks[0]["messageId"].as_str().map(str::to_owned)
        };
        assert_ne!(
            id(None, TURN),
            id(None, anew),
            "another answer is another message"
        );
        assert_eq!(id(Some("own"), TURN).as_deref(), Some("own"));
    }

    #[test]
    fn a_call_whose_input_is_no_json_is_an_error_and_one_without_input_is_not() {
        let chunks = translate(None, TURN, vec![call("{\"q\":")]);
        assert_eq!(chunks[2]["type"], "tool-input-error");
        assert_eq!(chunks[2]["input"], "{\"q\":");
        let chunks = translate(None, TURN, vec![call("")]);
        assert_eq!(chunks[1]["input"], json!({}));
    }

    #[test]
    fn a_stopped_turn_is_aborted_and_a_failed_one_is_an_error() {
        let stopped = Done {
            stopped: true,
            ..Done::default()
        };
        let chunks = translate(None, TURN, vec![started(), text("a"), done(stopped)]);
        let kinds: Vec<&Value> = chunks
            .as_array()
            .into_iter()
            .flatten()
            .map(|chunk| &chunk["type"])
            .collect();
        assert_eq!(kinds[4..], ["text-end", "finish-step", "abort"]);
        let problem = crate::http::problem::Problem::invalid("id", "is wrong");
        let failed = TurnEvent::Error(TurnFailed { problem });
        let chunks = translate(None, TURN, vec![failed]);
        assert_eq!(
            chunks,
            json!([{"type": "error", "errorText": "id: is wrong"}])
        );
    }

    #[test]
    fn an_answer_that_begins_again_ends_the_stream_if_some_of_it_was_sent() {
        let attempt = || TurnEvent::Attempt(pb::chat_response::Attempt::default().into());
        let chunks = translate(None, TURN, vec![started(), attempt(), text("a")]);
        assert_eq!(chunks[3]["type"], "text-delta", "{chunks}");
        let chunks = translate(None, TURN, vec![text("a"), attempt()]);
        assert_eq!(chunks[2]["type"], "error", "{chunks}");
    }
}
