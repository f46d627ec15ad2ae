//! Anthropic's Messages API: an answer is a list of content blocks, which start, grow and stop.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    CallFailure, CallUsage, StopReason,
    json::{lenient, tokens},
    partial_answer::{MALFORMED_EVENT, PartialAnswer, ProtocolReader, Visibility},
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

/// Token counts. `input` excludes the tokens that were read from the cache or written to it.
#[derive(Deserialize, Default)]
struct Usage {
    #[serde(rename = "input_tokens", default)]
    input: Option<u64>,
    #[serde(rename = "cache_read_input_tokens", default)]
    cache_read: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens", default)]
    cache_written: Option<u64>,
    #[serde(rename = "cache_creation", default)]
    written_by_ttl: Option<WrittenByTtl>,
    #[serde(rename = "output_tokens", default)]
    output: Option<u64>,
}

/// The tokens written to the cache, by the time for which they are kept.
#[derive(Debug, Clone, Copy, Deserialize, Default)]
struct WrittenByTtl {
    #[serde(rename = "ephemeral_1h_input_tokens", default)]
    one_hour: Option<u64>,
}

impl Usage {
    /// These counts. A missing one is taken from `earlier`.
    fn or(self, earlier: &Self) -> Self {
        Self {
            input: self.input.or(earlier.input),
            cache_read: self.cache_read.or(earlier.cache_read),
            cache_written: self.cache_written.or(earlier.cache_written),
            written_by_ttl: self.written_by_ttl.or(earlier.written_by_ttl),
            output: self.output.or(earlier.output),
        }
    }

    fn to_call_usage(&self) -> CallUsage {
        let (cached, written) = (tokens(self.cache_read), tokens(self.cache_written));
        CallUsage {
            input: tokens(self.input) + cached + written,
            cached,
            written,
            long_written: tokens(self.written_by_ttl.and_then(|written| written.one_hour)),
            output: tokens(self.output),
            // Thoughts are a part of the output that is not counted apart.
            reasoning: tokens(None),
        }
    }
}

/// The state of the reader: the blocks that have started and not stopped, by index, and the counts
/// so far.
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
    ToolUse {
        id: String,
        name: String,
        /// The input in the event that started the block. Fragments replace it.
        start_input: String,
        /// The fragments of the input so far, joined.
        fragments: String,
    },
    /// A kind of block that anneal does not request.
    Other,
}

impl ProtocolReader for Anthropic {
    fn read(&mut self, json: &str, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        let event: Event<'_> = serde_json::from_str(json).map_err(|_| MALFORMED_EVENT)?;
        match event.kind.as_str() {
            "message_start" => {
                self.record_usage(event.message.and_then(|message| message.usage), answer)
            }
            "content_block_start" => {
                let block = event.content_block.map(|start| start_block(start, answer));
                self.blocks.extend(block.map(|block| (event.index, block)));
                Ok(())
            }
            "content_block_delta" => {
                if let (Some(block), Some(delta)) = (self.blocks.get_mut(&event.index), event.delta)
                {
                    extend_block(block, delta, answer);
                }
                Ok(())
            }
            "content_block_stop" => self
                .blocks
                .remove(&event.index)
                .map_or(Ok(()), |block| finish_block(block, answer)),
            "message_delta" => {
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    answer.set_stop(stop_reason(&reason));
                }
                self.record_usage(event.usage, answer)
            }
            "message_stop" => {
                answer.close();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        std::mem::take(&mut self.blocks)
            .into_values()
            .try_for_each(|block| finish_block(block, answer))
    }
}

impl Anthropic {
    fn record_usage(
        &mut self,
        usage: Option<&RawValue>,
        answer: &mut PartialAnswer,
    ) -> Result<(), CallFailure> {
        let Some(usage) = lenient::<Usage>(usage) else {
            return Ok(());
        };
        self.usage = usage.or(&self.usage);
        answer.record_usage(self.usage.to_call_usage())
    }
}

fn start_block(start: BlockStart<'_>, answer: &mut PartialAnswer) -> Block {
    match start.kind.as_str() {
        "text" => {
            answer.push_text(start.text);
            Block::Text
        }
        "thinking" => {
            answer.push_thought(start.thinking.clone());
            Block::Thinking {
                text: start.thinking,
                signature: start.signature,
            }
        }
        "redacted_thinking" => Block::Redacted { cipher: start.data },
        "tool_use" => {
            let start_input = start
                .input
                .map_or_else(String::new, |input| input.get().to_owned());
            Block::ToolUse {
                id: start.id,
                name: start.name,
                start_input,
                fragments: String::new(),
            }
        }
        _ => Block::Other,
    }
}

fn extend_block(block: &mut Block, delta: Delta, answer: &mut PartialAnswer) {
    match block {
        Block::Text => answer.push_text(delta.text.unwrap_or_default()),
        Block::Thinking { text, signature } => {
            let more = delta.thinking.unwrap_or_default();
            text.push_str(&more);
            answer.push_thought(more);
            signature.push_str(&delta.signature.unwrap_or_default());
        }
        Block::ToolUse { fragments, .. } => {
            fragments.push_str(&delta.partial_json.unwrap_or_default());
        }
        Block::Redacted { .. } | Block::Other => {}
    }
}

fn finish_block(block: Block, answer: &mut PartialAnswer) -> Result<(), CallFailure> {
    match block {
        // Thoughts without a signature cannot be sent back to the provider, so they are not stored.
        // Their text has already been passed on as `Piece::Thought`.
        Block::Thinking { text, signature } if !signature.is_empty() => {
            answer.push_reasoning(PROVIDER, text, signature, Visibility::Readable);
        }
        Block::Redacted { cipher } => {
            answer.push_reasoning(PROVIDER, String::new(), cipher, Visibility::Hidden);
        }
        Block::ToolUse {
            id,
            name,
            start_input,
            fragments,
        } => {
            return answer.push_tool_call(
                id,
                name,
                if fragments.is_empty() {
                    start_input
                } else {
                    fragments
                },
            );
        }
        Block::Text | Block::Thinking { .. } | Block::Other => {}
    }
    Ok(())
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::OutputLimit,
        "refusal" => StopReason::Filtered,
        _ => StopReason::Done,
    }
}
