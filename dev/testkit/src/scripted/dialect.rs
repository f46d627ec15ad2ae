//! Writes a model's output as the events of each provider's protocol.

use anneal_llm::provider::Api;
use serde_json::{Value, json};

use super::ModelRequest;

/// A piece of a model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    /// A piece of text.
    Text(String),
    /// A piece of readable reasoning.
    Thought(String),
    /// The provider's signature of the preceding reasoning. OpenAI's protocol leaves it out.
    Signature(String),
    /// Reasoning that the provider hides, as ciphertext. Only Anthropic's protocol has it; the
    /// others leave it out.
    Redacted(String),
    /// A tool call. Its input is sent in two fragments if the protocol has fragments.
    ToolUse {
        /// The id of the call; empty: no id.
        id: String,
        /// The tool's name.
        name: String,
        /// The tool's input, as JSON text.
        input: String,
    },
    /// The model stops at its output limit. The place among the other pieces does not matter. If
    /// there is a tool call, the protocols of OpenAI and Anthropic report the call instead.
    OutputLimit,
}

impl Say {
    /// A piece of text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Pieces of text.
    pub fn texts(pieces: &[&str]) -> Vec<Self> {
        pieces.iter().map(|piece| Self::text(piece)).collect()
    }

    /// A piece of readable reasoning.
    pub fn thought(text: &str) -> Self {
        Self::Thought(text.to_owned())
    }

    /// A tool call.
    pub fn tool(id: &str, name: &str, input: &str) -> Self {
        Self::ToolUse {
            id: id.to_owned(),
            name: name.to_owned(),
            input: input.to_owned(),
        }
    }

    fn content(&self) -> &str {
        match self {
            Self::Text(content)
            | Self::Thought(content)
            | Self::Signature(content)
            | Self::Redacted(content) => content,
            Self::ToolUse { input, .. } => input,
            Self::OutputLimit => "",
        }
    }
}

/// The token usage that the provider reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedUsage {
    /// All input tokens.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
    /// Input tokens written to the cache. Anthropic reports them, and OpenAI if there are any.
    pub written: u64,
    /// Part of `written`: for an hour. Only Anthropic reports them.
    pub long_written: u64,
    /// Output tokens.
    pub output: u64,
    /// Part of `output`: thoughts. Only OpenAI reports them.
    pub reasoning: u64,
}

impl ReportedUsage {
    /// The default usage of an answer: one token per four bytes, nothing cached.
    pub(super) fn of(asked: &ModelRequest, says: &[Say]) -> Self {
        let output: usize = says.iter().map(|say| say.content().len()).sum();
        Self {
            input: tokens(asked.raw.len()),
            output: tokens(output),
            ..Self::default()
        }
    }
}

fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// The events of an answer, including its end.
pub(super) fn events(api: Api, says: &[Say], counted: ReportedUsage) -> Vec<String> {
    match api {
        Api::OpenAi => openai(says, counted),
        Api::Anthropic => anthropic(says, counted),
        Api::Gemini => gemini(says, counted),
    }
}

/// A server-sent event with this data.
fn data_event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A server-sent event with this data, whose name is the data's `type`.
fn named_event(value: &Value) -> String {
    format!(
        "event: {}\ndata: {value}\n\n",
        value["type"].as_str().unwrap_or_default()
    )
}

fn has_tool_call(says: &[Say]) -> bool {
    says.iter().any(|say| matches!(say, Say::ToolUse { .. }))
}

fn openai(says: &[Say], counted: ReportedUsage) -> Vec<String> {
    let chunk = |delta: Value, stop: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": stop});
        data_event(
            &json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}),
        )
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": null}), None)];
    let mut call_index = 0;
    for say in says {
        match say {
            Say::Text(text) => events.push(chunk(json!({"content": text}), None)),
            Say::Thought(text) => events.push(chunk(json!({"reasoning_content": text}), None)),
            Say::ToolUse { id, name, input } => {
                let (first, rest) = halves(input);
                let mut function = json!({"index": call_index, "type": "function", "function": {"name": name, "arguments": first}});
                if !id.is_empty() {
                    function["id"] = json!(id);
                }
                events.push(chunk(json!({"tool_calls": [function]}), None));
                let more = json!({"index": call_index, "function": {"arguments": rest}});
                events.push(chunk(json!({"tool_calls": [more]}), None));
                call_index += 1;
            }
            Say::Signature(_) | Say::Redacted(_) | Say::OutputLimit => {}
        }
    }
    let stop = if says.contains(&Say::OutputLimit) {
        "length"
    } else {
        "stop"
    };
    events.push(chunk(
        json!({}),
        Some(if has_tool_call(says) {
            "tool_calls"
        } else {
            stop
        }),
    ));
    let mut details = json!({"cached_tokens": counted.cached});
    if counted.written > 0 {
        details["cache_write_tokens"] = json!(counted.written);
    }
    let usage = json!({
        "prompt_tokens": counted.input,
        "completion_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
    });
    events.push(data_event(
        &json!({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage}),
    ));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(text.len() / 2))
}

fn anthropic(says: &[Say], counted: ReportedUsage) -> Vec<String> {
    // Anthropic's `input_tokens` are those neither read from the cache nor written to it.
    let usage = json!({
        "input_tokens": counted.input - counted.cached - counted.written,
        "cache_read_input_tokens": counted.cached,
        "cache_creation_input_tokens": counted.written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counted.written - counted.long_written,
            "ephemeral_1h_input_tokens": counted.long_written,
        },
        "output_tokens": 1,
    });
    let message =
        json!({"id": "m1", "type": "message", "role": "assistant", "content": [], "usage": usage});
    let mut events = vec![named_event(
        &json!({"type": "message_start", "message": message}),
    )];
    events.push(named_event(&json!({"type": "ping"})));
    let mut blocks = Blocks::default();
    for say in says {
        blocks.add(say);
    }
    blocks.close();
    events.append(&mut blocks.events);
    let stop = if says.contains(&Say::OutputLimit) {
        "max_tokens"
    } else {
        "end_turn"
    };
    let stop = if has_tool_call(says) {
        "tool_use"
    } else {
        stop
    };
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    events.push(named_event(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": counted.output}})));
    events.push(named_event(&json!({"type": "message_stop"})));
    events
}

/// Writes Anthropic's content blocks. Consecutive pieces of one kind share a block.
#[derive(Default)]
struct Blocks {
    events: Vec<String>,
    /// The index of the open block, or of the next one.
    index: usize,
    /// The kind of the open block.
    open_kind: Option<&'static str>,
}

impl Blocks {
    fn add(&mut self, say: &Say) {
        match say {
            Say::Text(text) => {
                self.open_block("text", &json!({"type": "text", "text": ""}));
                self.add_delta(&json!({"type": "text_delta", "text": text}));
            }
            Say::Thought(text) => {
                self.open_block(
                    "thinking",
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                );
                self.add_delta(&json!({"type": "thinking_delta", "thinking": text}));
            }
            Say::Signature(signature) => {
                self.open_block(
                    "thinking",
                    &json!({"type": "thinking", "thinking": "", "signature": ""}),
                );
                self.add_delta(&json!({"type": "signature_delta", "signature": signature}));
                self.close();
            }
            Say::Redacted(cipher) => {
                self.close();
                self.open_block(
                    "redacted",
                    &json!({"type": "redacted_thinking", "data": cipher}),
                );
                self.close();
            }
            Say::ToolUse { id, name, input } => {
                self.close();
                self.open_block(
                    "tool",
                    &json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                );
                let (first, rest) = halves(input);
                self.add_delta(&json!({"type": "input_json_delta", "partial_json": first}));
                self.add_delta(&json!({"type": "input_json_delta", "partial_json": rest}));
                self.close();
            }
            Say::OutputLimit => {}
        }
    }

    /// Opens a block of this kind, unless the open block is of this kind. Closes an open block of
    /// another kind.
    fn open_block(&mut self, kind: &'static str, block: &Value) {
        if self.open_kind != Some(kind) {
            self.close();
            let start =
                json!({"type": "content_block_start", "index": self.index, "content_block": block});
            self.events.push(named_event(&start));
            self.open_kind = Some(kind);
        }
    }

    /// Adds a delta to the open block.
    fn add_delta(&mut self, delta: &Value) {
        self.events.push(named_event(
            &json!({"type": "content_block_delta", "index": self.index, "delta": delta}),
        ));
    }

    /// Closes the open block, if there is one.
    fn close(&mut self) {
        if self.open_kind.take().is_some() {
            self.events.push(named_event(
                &json!({"type": "content_block_stop", "index": self.index}),
            ));
            self.index += 1;
        }
    }
}

fn gemini(says: &[Say], counted: ReportedUsage) -> Vec<String> {
    let chunk = |part: &str, stop: Option<&str>| {
        let stop = stop.map_or_else(String::new, |stop| format!(",\"finishReason\":\"{stop}\""));
        let usage = json!({
            "promptTokenCount": counted.input,
            "cachedContentTokenCount": counted.cached,
            "candidatesTokenCount": counted.output,
        });
        let content = format!("{{\"role\":\"model\",\"parts\":[{part}]}}");
        let candidate = format!("{{\"content\":{content},\"index\":0{stop}}}");
        format!("data: {{\"candidates\":[{candidate}],\"usageMetadata\":{usage}}}\r\n\r\n")
    };
    let mut events = Vec::new();
    for say in says {
        let part = match say {
            Say::Text(text) => json!({"text": text}).to_string(),
            Say::Thought(text) => json!({"text": text, "thought": true}).to_string(),
            Say::Signature(signature) => {
                json!({"text": "", "thoughtSignature": signature}).to_string()
            }
            // The input is spliced in as text, so that it arrives exactly as the test wrote it.
            Say::ToolUse { id, name, input } => {
                let id = if id.is_empty() {
                    String::new()
                } else {
                    format!("\"id\":{},", json!(id))
                };
                format!(
                    "{{\"functionCall\":{{{id}\"name\":{},\"args\":{input}}}}}",
                    json!(name)
                )
            }
            Say::Redacted(_) | Say::OutputLimit => continue,
        };
        events.push(chunk(&part, None));
    }
    let stop = if says.contains(&Say::OutputLimit) {
        "MAX_TOKENS"
    } else {
        "STOP"
    };
    events.push(chunk("{\"text\":\"\"}", Some(stop)));
    events
}
