//! Anthropic's messages: blocks that begin, grow and stop.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    CallFailure, CallUsage, StopReason,
    answer::{Dialect, NOT_THE_PROTOCOL, Shown, UnderWay},
    json::{lenient, tokens},
};

const PROVIDER: &str = "anthropic";

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(borrow, default)]
    content_block: Option<BlockStart<'a>>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    partial_json: Option<String>,
    #[serde(default)]
    stop_reason: Option<String>,
}

/// Tokens; input without what was read from the cache and written to it.
#[derive(Deserialize, Default)]
struct Usage {
    #[serde(rename = "input_tokens", default)]
    input: Option<u64>,
    #[serde(rename = "cache_read_input_tokens", default)]
    read: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens", default)]
    written: Option<u64>,
    #[serde(rename = "output_tokens", default)]
    output: Option<u64>,
}

impl Usage {
    /// These figures, and the earlier ones where these are silent.
    fn or(self, earlier: &Self) -> Self {
        Self {
            input: self.input.or(earlier.input),
            read: self.read.or(earlier.read),
            written: self.written.or(earlier.written),
            output: self.output.or(earlier.output),
        }
    }

    fn in_our_terms(&self) -> CallUsage {
        let (cached, written) = (tokens(self.read), tokens(self.written));
        CallUsage { input: tokens(self.input) + cached + written, cached, written, output: tokens(self.output) }
    }
}

/// Blocks that have begun and not stopped, by their index, and what was counted.
#[derive(Default)]
pub(super) struct Anthropic {
    blocks: BTreeMap<u64, Block>,
    usage: Usage,
}

enum Block {
    Text,
    Thinking {
        text: String,
        signature: String,
    },
    Redacted {
        cipher: String,
    },
    /// `given` is the input that stood at the block's start; fragments come in its place.
    ToolUse {
        id: String,
        name: String,
        given: String,
        fragments: String,
    },
    /// Of a kind that was not asked for.
    Other,
}

impl Dialect for Anthropic {
    fn read(&mut self, json: &str, answer: &mut UnderWay) -> Result<(), CallFailure> {
        let event: Event<'_> = serde_json::from_str(json).map_err(|_| NOT_THE_PROTOCOL)?;
        match event.kind.as_str() {
            "message_start" => self.count(event.message.and_then(|message| message.usage), answer),
            "content_block_start" => {
                let block = event.content_block.map(|start| begun(start, answer));
                self.blocks.extend(block.map(|block| (event.index, block)));
                Ok(())
            }
            "content_block_delta" => {
                if let (Some(block), Some(delta)) = (self.blocks.get_mut(&event.index), event.delta) {
                    grow(block, delta, answer);
                }
                Ok(())
            }
            "content_block_stop" => self.blocks.remove(&event.index).map_or(Ok(()), |block| stopped(block, answer)),
            "message_delta" => {
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    answer.stop(stop(&reason));
                }
                self.count(event.usage, answer)
            }
            "message_stop" => {
                answer.close();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, answer: &mut UnderWay) -> Result<(), CallFailure> {
        std::mem::take(&mut self.blocks).into_values().try_for_each(|block| stopped(block, answer))
    }
}

impl Anthropic {
    fn count(&mut self, usage: Option<&RawValue>, answer: &mut UnderWay) -> Result<(), CallFailure> {
        let Some(usage) = lenient::<Usage>(usage) else { return Ok(()) };
        self.usage = usage.or(&self.usage);
        answer.counted(self.usage.in_our_terms())
    }
}

fn begun(start: BlockStart<'_>, answer: &mut UnderWay) -> Block {
    match start.kind.as_str() {
        "text" => {
            answer.text(start.text);
            Block::Text
        }
        "thinking" => {
            answer.thought(start.thinking.clone());
            Block::Thinking { text: start.thinking, signature: start.signature }
        }
        "redacted_thinking" => Block::Redacted { cipher: start.data },
        "tool_use" => {
            let given = start.input.map_or_else(String::new, |input| input.get().to_owned());
            Block::ToolUse { id: start.id, name: start.name, given, fragments: String::new() }
        }
        _ => Block::Other,
    }
}

fn grow(block: &mut Block, delta: Delta, answer: &mut UnderWay) {
    match block {
        Block::Text => answer.text(delta.text.unwrap_or_default()),
        Block::Thinking { text, signature } => {
            let more = delta.thinking.unwrap_or_default();
            text.push_str(&more);
            answer.thought(more);
            signature.push_str(&delta.signature.unwrap_or_default());
        }
        Block::ToolUse { fragments, .. } => fragments.push_str(&delta.partial_json.unwrap_or_default()),
        Block::Redacted { .. } | Block::Other => {}
    }
}

fn stopped(block: Block, answer: &mut UnderWay) -> Result<(), CallFailure> {
    match block {
        // Without a signature nobody takes them back: they are thoughts, and were handed on as such.
        Block::Thinking { text, signature } if !signature.is_empty() => {
            answer.reasoning(PROVIDER, text, signature, Shown::Readable);
        }
        Block::Redacted { cipher } => answer.reasoning(PROVIDER, String::new(), cipher, Shown::Hidden),
        Block::ToolUse { id, name, given, fragments } => {
            return answer.call(id, name, if fragments.is_empty() { given } else { fragments });
        }
        Block::Text | Block::Thinking { .. } | Block::Other => {}
    }
    Ok(())
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::OutputLimit,
        "refusal" => StopReason::Filtered,
        _ => StopReason::Done,
    }
}
