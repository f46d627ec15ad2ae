//! Answers that look like success: whether something was said, how it ended, and how much of the prompt was read.

use serde_json::Value;

/// Fields in which answers carry what was said.
const SAID: [&str; 12] = [
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

/// Fields that say why the answer ended.
const STOPS: [&str; 5] = ["stop_reason", "finish_reason", "finishReason", "stopReason", "done_reason"];

/// Fields that are about a piece of an answer, not what was said in it.
const ABOUT: [&str; 16] = [
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

/// What an answer came to.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether any of it has a shape that we know; of others nothing is concluded.
    pub(super) is_known: bool,
    /// Whether there is any text, thought or call of a tool.
    pub(super) said: bool,
    /// Why it ended, as the provider says it.
    pub(super) stop: Option<String>,
    /// Tokens of the prompt that the provider read, caches included.
    pub(super) prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub(super) output_tokens: Option<u64>,
}

impl Progress {
    /// Takes in a whole answer, or one event of it.
    pub(super) fn take(&mut self, answer: &Value) {
        if let Value::Array(list) = answer {
            list.iter().filter(|answer| answer.is_object()).for_each(|answer| self.take(answer));
            return;
        }
        let kind = answer.get("type").or_else(|| answer.get("event_type")).and_then(Value::as_str).unwrap_or_default();
        self.is_known |= is_known(answer, kind);
        self.said |= said_in(answer).any(speaks);
        for list in ["choices", "candidates"].iter().filter_map(|key| answer.get(key)?.as_array()) {
            for choice in list {
                self.said |= SAID.iter().filter_map(|key| choice.get(key)).any(speaks);
                self.take_stop(choice);
            }
        }
        let within = ["delta", "messageStop", "response", "message"].iter().filter_map(|key| answer.get(key));
        within.chain([answer]).for_each(|part| {
            self.take_stop(part);
            self.take_usage(part);
        });
        let blocked = answer.get("promptFeedback").and_then(|feedback| feedback.get("blockReason"));
        let ended = match kind {
            "message_stop" | "response.completed" | "response.incomplete" => Some(kind),
            _ if blocked.is_some() => Some("blocked"),
            _ if answer.get("done") == Some(&Value::Bool(true)) => Some("stop"),
            _ => None,
        };
        self.stop = self.stop.take().or_else(|| ended.map(str::to_owned));
    }

    fn take_stop(&mut self, part: &Value) {
        let stop = STOPS.iter().find_map(|key| part.get(key)?.as_str());
        let is_response = part.get("object").is_some_and(|object| object == "response");
        let ended =
            |status: &&str| is_response && matches!(*status, "completed" | "incomplete" | "failed" | "cancelled");
        let status = || part.get("status")?.as_str().filter(ended);
        let stop = stop.or_else(status).filter(|stop| !stop.is_empty());
        self.stop = self.stop.take().or_else(|| stop.map(str::to_owned));
    }

    fn take_usage(&mut self, part: &Value) {
        let usage = part.get("usage").or_else(|| part.get("usageMetadata")).unwrap_or(part);
        let sum = |keys: &[&str]| {
            let found: Vec<u64> = keys.iter().filter_map(|key| usage.get(key)?.as_u64()).collect();
            (!found.is_empty()).then(|| found.iter().fold(0, |sum: u64, tokens| sum.saturating_add(*tokens)))
        };
        let prompt = [
            sum(&["prompt_tokens"]),
            sum(&["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]),
            sum(&["inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"]),
            sum(&["promptTokenCount"]),
            sum(&["prompt_eval_count"]),
        ];
        let output =
            [sum(&["completion_tokens"]), sum(&["output_tokens"]), sum(&["outputTokens"]), sum(&["eval_count"])];
        self.prompt_tokens = self.prompt_tokens.max(prompt.into_iter().flatten().max());
        self.output_tokens = self.output_tokens.max(output.into_iter().flatten().max());
    }

    /// Whether an answer without words ended as if there was nothing to add. Stopping by a limit is no sign, unless not
    /// even thoughts came out; calls, filters and Anthropic's end_turn may be empty by right.
    pub(super) fn is_hollow(&self) -> bool {
        let ended = match self.stop.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("stop" | "eos" | "complete" | "completed" | "response.completed") => true,
            Some("length" | "max_tokens") => self.output_tokens == Some(0),
            Some(_) => false,
        };
        self.is_known && !self.said && ended
    }
}

/// The fields of an answer in which something may be said. OpenAI's responses repeat what was asked beside it.
fn said_in(answer: &Value) -> impl Iterator<Item = &Value> {
    let response = answer.get("response").filter(|response| response.is_object());
    let is_response = response.is_some() || answer.get("object").is_some_and(|object| object == "response");
    let fields: &[&str] = if is_response { &["output", "delta"] } else { &SAID };
    let answers = [Some(answer), response].into_iter().flatten();
    answers.flat_map(|answer| fields.iter().filter_map(|key| answer.get(key)))
}

/// Whether this is an answer, or an event of one, as some provider makes them.
fn is_known(answer: &Value, kind: &str) -> bool {
    let has = |key| answer.get(key).is_some();
    let typed = ["message", "content_block_", "content-", "response.", "text-generation", "stream-"];
    let background = ["in_progress", "queued"].map(Value::from);
    let in_background = answer.get("status").is_some_and(|status| background.contains(status));
    has("choices")
        || has("candidates")
        || has("stopReason")
        || has("messageStart")
        || has("finish_reason")
        || answer.get("done").is_some_and(Value::is_boolean)
        || (answer.get("object").is_some_and(|object| object == "response") && !in_background)
        || typed.iter().any(|start| kind.starts_with(start))
}

/// Whether a value holds anything that was said.
fn speaks(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => list.iter().any(speaks),
        Value::Object(fields) => is_call(fields) || fields.iter().any(|(key, value)| !is_about(key) && speaks(value)),
        _ => false,
    }
}

fn is_call(fields: &serde_json::Map<String, Value>) -> bool {
    fields.contains_key("name")
        && (fields.contains_key("input") || fields.contains_key("arguments") || fields.contains_key("args"))
}

fn is_about(key: &str) -> bool {
    ABOUT.contains(&key) || STOPS.contains(&key)
}
