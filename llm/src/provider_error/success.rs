//! Answers that look like success: whether they have content, how they ended, and the provider's
//! counts.

use serde_json::Value;

/// Fields that hold an answer's content.
const CONTENT_FIELDS: [&str; 12] = [
    "content",
    "content_block",
    "contentBlockDelta",
    "contentBlockStart",
    "delta",
    "message",
    "output",
    "reasoning",
    "response",
    "text",
    "thinking",
    "tool_calls",
];

/// Fields that hold the stop reason.
const STOP_FIELDS: [&str; 5] = [
    "stop_reason",
    "finish_reason",
    "finishReason",
    "stopReason",
    "done_reason",
];

/// Fields of an answer or its parts that hold no content.
const METADATA_FIELDS: [&str; 16] = [
    "type",
    "role",
    "index",
    "id",
    "object",
    "status",
    "model",
    "name",
    "usage",
    "annotations",
    "logprobs",
    "created_at",
    "stop_sequence",
    "item_id",
    "contentBlockIndex",
    "signature",
];

/// The state of an answer, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct AnswerState {
    /// Whether any part has a known format. An answer in an unknown format is never called empty.
    pub(super) is_known: bool,
    /// Whether there is any text, thought or tool call.
    pub(super) has_content: bool,
    /// The provider's stop reason. If the answer only marks its end: the type or status that marks
    /// it, `stop` for `"done": true`, and `blocked` for a blocked prompt. None: no end was read.
    pub(super) stop: Option<String>,
    /// Tokens of the prompt by the provider's count, caches included.
    pub(super) prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub(super) output_tokens: Option<u64>,
}

impl AnswerState {
    /// Reads a whole answer, or one event of it.
    pub(super) fn take(&mut self, answer: &Value) {
        if let Value::Array(list) = answer {
            list.iter()
                .filter(|answer| answer.is_object())
                .for_each(|answer| self.take(answer));
            return;
        }
        let kind = answer
            .get("type")
            .or_else(|| answer.get("event_type"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        self.is_known |= is_known(answer, kind);
        self.has_content |= content_values(answer).any(is_content);
        for list in ["choices", "candidates"]
            .iter()
            .filter_map(|key| answer.get(key)?.as_array())
        {
            for choice in list {
                self.has_content |= CONTENT_FIELDS
                    .iter()
                    .filter_map(|key| choice.get(key))
                    .any(is_content);
                self.take_stop(choice);
            }
        }
        let nested = ["delta", "messageStop", "response", "message"]
            .iter()
            .filter_map(|key| answer.get(key));
        nested.chain([answer]).for_each(|part| {
            self.take_stop(part);
            self.take_usage(part);
        });
        let blocked = answer
            .get("promptFeedback")
            .and_then(|feedback| feedback.get("blockReason"));
        let ended = match kind {
            "message_stop" | "response.completed" | "response.incomplete" => Some(kind),
            _ if blocked.is_some() => Some("blocked"),
            _ if answer.get("done") == Some(&Value::Bool(true)) => Some("stop"),
            _ => None,
        };
        self.stop = self.stop.take().or_else(|| ended.map(str::to_owned));
    }

    fn take_stop(&mut self, part: &Value) {
        let stop = STOP_FIELDS.iter().find_map(|key| part.get(key)?.as_str());
        let is_response = part
            .get("object")
            .is_some_and(|object| object == "response");
        let ended = |status: &&str| {
            is_response && matches!(*status, "completed" | "incomplete" | "failed" | "cancelled")
        };
        let status = || part.get("status")?.as_str().filter(ended);
        let stop = stop.or_else(status).filter(|stop| !stop.is_empty());
        self.stop = self.stop.take().or_else(|| stop.map(str::to_owned));
    }

    fn take_usage(&mut self, part: &Value) {
        let usage = part
            .get("usage")
            .or_else(|| part.get("usageMetadata"))
            .unwrap_or(part);
        let sum = |keys: &[&str]| {
            let found: Vec<u64> = keys
                .iter()
                .filter_map(|key| usage.get(key)?.as_u64())
                .collect();
            (!found.is_empty()).then(|| {
                found
                    .iter()
                    .fold(0, |sum: u64, tokens| sum.saturating_add(*tokens))
            })
        };
        // Each provider has its own names. Anthropic and Bedrock count cached input separately.
        let prompt = [
            sum(&["prompt_tokens"]),
            sum(&[
                "input_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
            ]),
            sum(&[
                "inputTokens",
                "cacheReadInputTokens",
                "cacheWriteInputTokens",
            ]),
            sum(&["promptTokenCount"]),
            sum(&["prompt_eval_count"]),
        ];
        let output = [
            sum(&["completion_tokens"]),
            sum(&["output_tokens"]),
            sum(&["outputTokens"]),
            sum(&["eval_count"]),
        ];
        // Several events of a stream may report counts; the largest is that of the whole answer.
        self.prompt_tokens = self.prompt_tokens.max(prompt.into_iter().flatten().max());
        self.output_tokens = self.output_tokens.max(output.into_iter().flatten().max());
    }

    /// Whether the answer has no content although it ended normally or names no stop reason. An
    /// answer that stopped at its output limit counts only if the provider counted no output. An
    /// answer that ended with a tool call, a filter or Anthropic's `end_turn` may be empty.
    pub(super) fn is_empty_answer(&self) -> bool {
        let ended = match self.stop.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("stop" | "eos" | "complete" | "completed" | "response.completed") => true,
            Some("length" | "max_tokens") => self.output_tokens == Some(0),
            Some(_) => false,
        };
        self.is_known && !self.has_content && ended
    }
}

/// The values of an answer that may be content. The objects of OpenAI's Responses API also repeat
/// the request, which is left out.
fn content_values(answer: &Value) -> impl Iterator<Item = &Value> {
    let response = answer
        .get("response")
        .filter(|response| response.is_object());
    let is_response = response.is_some()
        || answer
            .get("object")
            .is_some_and(|object| object == "response");
    let fields: &[&str] = if is_response {
        &["output", "delta"]
    } else {
        &CONTENT_FIELDS
    };
    let answers = [Some(answer), response].into_iter().flatten();
    answers.flat_map(|answer| fields.iter().filter_map(|key| answer.get(key)))
}

/// Whether the value is an answer, or an event of one, in a known format.
fn is_known(answer: &Value, kind: &str) -> bool {
    let has = |key| answer.get(key).is_some();
    let type_prefixes = [
        "message",
        "content_block_",
        "content-",
        "response.",
        "text-generation",
        "stream-",
    ];
    // A response that OpenAI computes in the background has no content yet, which is no failure.
    let background_statuses = ["in_progress", "queued"].map(Value::from);
    let in_background = answer
        .get("status")
        .is_some_and(|status| background_statuses.contains(status));
    has("choices")
        || has("candidates")
        || has("stopReason")
        || has("messageStart")
        || has("finish_reason")
        || answer.get("done").is_some_and(Value::is_boolean)
        || (answer
            .get("object")
            .is_some_and(|object| object == "response")
            && !in_background)
        || type_prefixes.iter().any(|prefix| kind.starts_with(prefix))
}

/// Whether a value holds content.
fn is_content(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => list.iter().any(is_content),
        Value::Object(fields) => {
            is_call(fields)
                || fields
                    .iter()
                    .any(|(key, value)| !is_metadata(key) && is_content(value))
        }
        _ => false,
    }
}

fn is_call(fields: &serde_json::Map<String, Value>) -> bool {
    fields.contains_key("name")
        && (fields.contains_key("input")
            || fields.contains_key("arguments")
            || fields.contains_key("args"))
}

fn is_metadata(key: &str) -> bool {
    METADATA_FIELDS.contains(&key) || STOP_FIELDS.contains(&key)
}
