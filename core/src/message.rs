//! A message: who spoke, and the parts of what was said. The serde form is the stored form (`ai_message.content`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Place of a message in its conversation: 1, 2, 3 … without gaps, in commit order. 0 means "before the first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct MessageId(pub i64);

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl MessageId {
    /// Before the first message.
    pub const NONE: Self = Self(0);

    /// The id that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person (or system) that the model answers.
    User,
    /// The model.
    Assistant,
    /// What ran a tool for the model: carries tool results.
    Tool,
    /// An instruction of the application in the middle of a conversation.
    System,
}

impl Role {
    /// The role's name as stored, logged and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }
}

/// A file or picture that the message refers to; its bytes live elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Where it lies.
    pub uri: String,
    /// IANA media type, for example `image/png`.
    pub media_type: String,
    /// Its size in bytes; 0 when not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// What the provider will charge for it, as the caller says; 0 when not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text, byte for byte; may hold NUL.
        text: String,
    },
    /// A call that the model makes.
    ToolUse {
        /// The call's id, as the provider gave it.
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments: JSON text, kept byte for byte.
        input: String,
    },
    /// What a tool answered.
    ToolResult {
        /// Id of the call that this answers.
        id: String,
        /// The answer's text.
        text: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        /// Pictures and files among the answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        media: Vec<Media>,
    },
    /// A file or picture.
    Media(Media),
    /// What the model thought before it answered.
    Reasoning {
        /// Readable thoughts; may be empty when the provider hides them.
        text: String,
        /// The provider's opaque signature or ciphertext, needed to send the block back; empty when there is none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        signature: String,
        /// Who signed it, and so who may get it back: `anthropic`, `openai`, `gemini`; empty when not known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        provider: String,
        /// Whether the provider hides the thoughts, and `signature` is their ciphertext.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
}

/// What is said in one row: role, parts and the caller's labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// The caller's labels; never sent to a model.
    pub metadata: BTreeMap<String, String>,
}

/// What a context must know of a message's tools without reading its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMark {
    /// The message makes this call.
    Call {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// The message answers this call.
    Result {
        /// The call's id.
        id: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Its tool calls and results, in order; empty for most messages.
    pub fn tool_outline(&self) -> Vec<ToolMark> {
        outline(&self.parts)
    }
}

/// The messages as a conversation that keeps no tools stores them, each with its place: no tool results, no calls, and
/// nothing of a message that only called.
pub fn without_tools(messages: &[Message]) -> Vec<(usize, Message)> {
    let kept =
        messages.iter().enumerate().filter(|(_, message)| message.role != Role::Tool).filter_map(|(place, message)| {
            let parts: Vec<Part> =
                message.parts.iter().filter(|part| !matches!(part, Part::ToolUse { .. })).cloned().collect();
            let said = parts.iter().any(|part| matches!(part, Part::Text { .. } | Part::Media(_)));
            said.then(|| (place, Message { role: message.role, parts, metadata: message.metadata.clone() }))
        });
    kept.collect()
}

/// Tool calls and results among `parts`, in order.
pub fn outline(parts: &[Part]) -> Vec<ToolMark> {
    parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolUse { id, name, .. } => Some(ToolMark::Call { id: id.clone(), name: name.clone() }),
            Part::ToolResult { id, is_error, .. } => Some(ToolMark::Result { id: id.clone(), is_error: *is_error }),
            Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => None,
        })
        .collect()
}

/// The text of one part: what is read, counted and cut. Media have none.
pub fn part_text(part: &Part) -> &str {
    match part {
        Part::Text { text } | Part::ToolResult { text, .. } | Part::Reasoning { text, .. } => text,
        Part::ToolUse { input, .. } => input,
        Part::Media(_) => "",
    }
}

/// Bytes of everything that a part holds, roughly: what it takes to read it.
pub fn part_bytes(part: &Part) -> usize {
    let of_media = |media: &Media| media.uri.len() + media.media_type.len();
    part_text(part).len()
        + match part {
            Part::Text { .. } => 0,
            Part::ToolUse { id, name, .. } => id.len() + name.len(),
            Part::ToolResult { id, media, .. } => id.len() + media.iter().map(of_media).sum::<usize>(),
            Part::Media(media) => of_media(media),
            Part::Reasoning { signature, .. } => signature.len(),
        }
}

/// Stands between two parts in a message's plain text.
pub const PART_JOIN: &str = "\n\n";

/// A message's plain text: its parts' texts, joined by a blank line. Byte ranges count in it.
pub fn plain_text(parts: &[Part]) -> String {
    parts.iter().map(part_text).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(PART_JOIN)
}

/// Bytes of [`plain_text`], without building it.
pub fn plain_text_bytes(parts: &[Part]) -> usize {
    let texts = parts.iter().map(part_text).filter(|text| !text.is_empty());
    let (count, bytes) = texts.fold((0_usize, 0), |(n, bytes), text| (n + 1, bytes + text.len()));
    bytes + count.saturating_sub(1) * PART_JOIN.len()
}
