//! The body of a turn, as `DefaultChatTransport` sends it, with options of this server beside it.

use anneal_core::limits::REQUEST_BYTES;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::parsed_message::{UiMessage, parse_id};
use crate::http::{
    bounded_collections::{BoundedLabels, BoundedModels, ListReader},
    chat_body::ChatBody,
    chat_options::{ReasoningEffort, ResponseFormat, StopTexts, ToolChoice, Tools},
    problem::Problem,
};

/// Most messages of a request: one for each 256 bytes of the largest one.
const MESSAGES: usize = REQUEST_BYTES / 256;

/// The body of a turn. `messages` is the whole history, or its last message alone, which may also
/// be given as `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UiBody {
    #[serde(default)]
    id: String,
    messages: Option<RawMessages>,
    message: Option<Box<RawValue>>,
    trigger: Option<Trigger>,
    message_id: Option<String>,
    user_id: Option<String>,
    model: Option<String>,
    fallback_models: Option<BoundedModels>,
    max_output_tokens: Option<u64>,
    tools: Option<Tools>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<ResponseFormat>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    stop: Option<StopTexts>,
    reasoning_effort: Option<ReasoningEffort>,
    metadata: Option<BoundedLabels>,
}

/// Messages that are not parsed yet, at most one more than [`MESSAGES`]. Most are stored already,
/// and are never parsed.
#[derive(Debug, Default)]
struct RawMessages(Vec<Box<RawValue>>);

impl<'de> Deserialize<'de> for RawMessages {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(MESSAGES)).map(Self)
    }
}

/// What the client wants.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Trigger {
    /// An answer to the last message.
    #[default]
    SubmitMessage,
    /// Another answer.
    RegenerateMessage,
}

/// What a turn asks for.
#[derive(Debug)]
pub(super) struct UiAsk {
    /// The id of the chat.
    pub(super) chat: String,
    /// The end user of a new chat.
    pub(super) user_id: Option<String>,
    pub(super) trigger: Trigger,
    /// The message that is edited or answered anew; None: the newest one.
    pub(super) message_id: Option<String>,
    /// The messages before the last one, not parsed.
    pub(super) earlier: Vec<Box<RawValue>>,
    /// The last message, and its name in the request. None: the request has no messages.
    pub(super) last: Option<(String, UiMessage)>,
    /// How the model answers. It has no prompt.
    pub(super) options: ChatBody,
}

impl UiBody {
    /// Bytes of the messages, and how many there are.
    pub(super) fn size(&self) -> (usize, usize) {
        let messages = self.messages.as_ref().map_or(&[][..], |list| &list.0);
        let all = messages.iter().chain(&self.message);
        all.fold((0, 0), |(bytes, count), message| {
            (bytes + message.get().len(), count + 1)
        })
    }

    /// Parses the ids and the last message.
    pub(super) fn parse(self) -> Result<UiAsk, Problem> {
        parse_id("id", &self.id)?;
        if let Some(id) = &self.message_id {
            parse_id("messageId", id)?;
        }
        if let Some(id) = &self.user_id {
            parse_id("userId", id)?;
        }
        let (mut earlier, single) = match (self.messages, self.message) {
            (Some(_), Some(_)) => {
                let reason = "must not be given together with messages";
                return Err(Problem::invalid("message", reason));
            }
            (Some(RawMessages(messages)), None) => (messages, None),
            (None, single) => (Vec::new(), single),
        };
        if earlier.len() > MESSAGES {
            let reason = format!("must be at most {MESSAGES} messages");
            return Err(Problem::invalid("messages", reason));
        }
        let last = if let Some(message) = single {
            Some(("message".to_owned(), message))
        } else {
            let last = earlier.pop();
            last.map(|message| (format!("messages[{}]", earlier.len()), message))
        };
        let last = last
            .map(|(field, raw)| UiMessage::parse(&field, &raw).map(|message| (field, message)))
            .transpose()?;
        let trigger = self.trigger.unwrap_or_default();
        if last.is_none() && trigger == Trigger::SubmitMessage {
            let reason = "must hold at least the last message";
            return Err(Problem::invalid("messages", reason));
        }
        Ok(UiAsk {
            chat: self.id,
            user_id: self.user_id,
            trigger,
            message_id: self.message_id,
            earlier,
            last,
            options: ChatBody {
                model: self.model,
                fallback_models: self.fallback_models,
                max_output_tokens: self.max_output_tokens,
                tools: self.tools,
                tool_choice: self.tool_choice,
                parallel_tool_calls: self.parallel_tool_calls,
                response_format: self.response_format,
                temperature: self.temperature,
                top_p: self.top_p,
                stop: self.stop,
                reasoning_effort: self.reasoning_effort,
                metadata: self.metadata,
                ..ChatBody::default()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: serde_json::Value) -> Result<UiAsk, Problem> {
        serde_json::from_value::<UiBody>(value)
            .expect("is read")
            .parse()
    }

    #[test]
    fn a_whole_history_and_the_last_message_alone_are_read_alike() {
        let last = json!({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "b"}]});
        // Earlier messages may be anything: most of them are never read.
        let whole =
            json!({"id": "c", "messages": [{"x": 1}, 2, last], "trigger": "submit-message"});
        let ask = parse(whole).expect("is valid");
        assert_eq!(
            (ask.earlier.len(), ask.trigger),
            (2, Trigger::SubmitMessage)
        );
        let (field, message) = ask.last.expect("there is one");
        assert_eq!((field.as_str(), message.id.as_str()), ("messages[2]", "u2"));
        let ask = parse(json!({"id": "c", "message": last})).expect("is valid");
        let (field, message) = ask.last.expect("there is one");
        assert_eq!((field.as_str(), message.id.as_str()), ("message", "u2"));
    }

    #[test]
    fn a_body_without_a_chat_or_a_message_is_refused() {
        let message = json!({"id": "u", "role": "user", "parts": []});
        for body in [
            json!({"message": message}),
            json!({"id": "", "message": message}),
            json!({"id": "x".repeat(129), "message": message}),
            json!({"id": "c"}),
            json!({"id": "c", "messages": []}),
            json!({"id": "c", "messages": [message], "message": message}),
            json!({"id": "c", "messages": ["text"]}),
            json!({"id": "c", "messages": [{"id": "u", "role": "robot", "parts": []}]}),
            json!({"id": "c", "message": message, "messageId": ""}),
        ] {
            assert!(parse(body.clone()).is_err(), "{body}");
        }
        let regenerate = json!({"id": "c", "trigger": "regenerate-message"});
        assert!(parse(regenerate).is_ok(), "the newest question is meant");
    }

    #[test]
    fn unknown_fields_and_triggers_are_refused() {
        for body in [
            json!({"id": "c", "webSearch": true}),
            json!({"id": "c", "trigger": "resume-stream"}),
            json!({"id": "c", "messages": "not a list"}),
        ] {
            assert!(
                serde_json::from_value::<UiBody>(body.clone()).is_err(),
                "{body}"
            );
        }
    }
}
