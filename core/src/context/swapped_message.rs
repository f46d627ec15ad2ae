//! The parts that are sent in place of a message that is swapped for its summary, and the mark
//! before a checkpoint's summary. A mark is a line in brackets that says what the text after it
//! summarizes.

use crate::{
    message::{MessageId, Part, Role, ToolMark},
    tokens::{Encoding, Tokens},
};

/// A message that is sent as its summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwappedMessage {
    /// Its id.
    pub id: MessageId,
    /// Author of the message.
    pub role: Role,
    /// Bytes of the original's plain text.
    pub original_bytes: u64,
    /// Its tool calls and results, in order.
    pub outline: Vec<ToolMark>,
}

impl SwappedMessage {
    /// Tokens that are sent in addition to the summary: the mark before it, and what stands for the
    /// message's tool calls and results.
    pub fn overhead_tokens(&self, encoding: Encoding) -> Tokens {
        self.parts("", encoding).1
    }

    /// The parts to send, and their tokens without those of `summary`.
    pub(super) fn parts(&self, summary: &str, encoding: Encoding) -> (Vec<Part>, Tokens) {
        let counter = encoding.counter();
        let Self {
            id, original_bytes, ..
        } = self;
        let mark = format!(
            "[Summary of message {id}; its original of {original_bytes} bytes is kept under that id]\n"
        );
        let mut overhead = counter.count(&mark) + JOIN_TOKENS;
        let mut text = Some(mark + summary);
        let mut parts = Vec::with_capacity(self.outline.len() + 1);
        if self.role != Role::Tool {
            parts.extend(text.take().map(|text| Part::Text { text }));
        }
        for tool_mark in &self.outline {
            parts.push(match tool_mark {
                ToolMark::Call { id: call, name } => {
                    let input = format!("{{\"summarised_in_message\":{id}}}");
                    overhead += counter.count(&input) + counter.count(name);
                    Part::ToolUse {
                        id: call.clone(),
                        name: name.clone(),
                        input,
                    }
                }
                ToolMark::Result { id: call, is_error } => {
                    let text = text.take().unwrap_or_else(|| {
                        overhead += counter.count(IN_THE_SUMMARY);
                        IN_THE_SUMMARY.to_owned()
                    });
                    Part::ToolResult {
                        id: call.clone(),
                        text,
                        is_error: *is_error,
                        media: Vec::new(),
                    }
                }
            });
        }
        parts.extend(text.map(|text| Part::Text { text }));
        (parts, overhead)
    }
}

/// Text of the second and further results of a swapped message. The first one holds the summary.
const IN_THE_SUMMARY: &str = "[in the summary above]";

/// The text before a checkpoint's summary.
pub(super) fn checkpoint_mark(last: MessageId) -> String {
    format!("[Summary of the conversation up to message {last}]\n")
}

/// Tokens that are sent in addition to a checkpoint's summary.
pub fn checkpoint_overhead_tokens(last: MessageId, encoding: Encoding) -> Tokens {
    encoding.counter().count(&checkpoint_mark(last)) + JOIN_TOKENS
}

/// Most tokens that mark and summary have as one text in excess of the sum of their own counts. In
/// `o200k_base` the end of the mark joins with slashes, so that `/MPL/` after it counts three
/// tokens instead of one. This is the maximum over 450,000 beginnings of lines.
const JOIN_TOKENS: Tokens = Tokens::new(2);
