//! A message: a role and its parts. The serde form of a part is the stored form
//! (`ai_message.content`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Position of a message in its conversation: 1, 2, 3 … without gaps, in commit order. 0 means
/// "before the first".
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
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

    /// The next id.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person (or system) that the model answers.
    User,
    /// The model.
    Assistant,
    /// The application that ran a tool for the model. The message carries tool results.
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

/// A file or picture of a message. Its bytes are elsewhere, or in the URI itself (`data:`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The address of the file or picture, or a `data:` URI that holds its bytes.
    pub uri: String,
    /// IANA media type, for example `image/png`.
    pub media_type: String,
    /// Its size in bytes; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Tokens that the provider charges for it, as the caller states; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text, byte for byte. It may contain NUL.
        text: String,
    },
    /// A tool call of the model.
    ToolUse {
        /// The call's id, as the provider gave it.
        id: String,
        /// The tool's name.
        name: String,
        /// The call's arguments: JSON text, kept byte for byte.
        input: String,
    },
    /// The result of a tool call.
    ToolResult {
        /// Id of the answered call.
        id: String,
        /// The result's text.
        text: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        /// Pictures and files of the result.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        media: Vec<Media>,
    },
    /// A file or picture.
    Media(Media),
    /// The model's reasoning before its answer.
    Reasoning {
        /// The readable reasoning; empty if the provider hides it.
        text: String,
        /// The provider's opaque signature or ciphertext, which it requires to accept the part
        /// again; empty if there is none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        signature: String,
        /// The provider that signed it, and the only one that accepts it again: `anthropic`,
        /// `openai`, `gemini`; empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        provider: String,
        /// Whether the provider hides the reasoning, so that `signature` is its ciphertext.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
}

/// The content of one stored message: role, parts and the caller's labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// The parts, in order.
    pub parts: Vec<Part>,
    /// The caller's labels. They are never sent to a model.
    pub metadata: BTreeMap<String, String>,
}

/// One tool call or tool result of a message, without its content. A message's outline lists them,
/// for code that does not read the content.
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

/// The messages as a conversation that keeps no tools stores them, each with its index in
/// `messages`. Tool messages are removed, and so are the tool calls of other messages, and messages
/// that have neither text nor media.
pub fn without_tools(messages: &[Message]) -> Vec<(usize, Message)> {
    let kept = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| is_kept_without_tools(message))
        .map(|(index, message)| {
            let parts = message
                .parts
                .iter()
                .filter(|part| !matches!(part, Part::ToolUse { .. }))
                .cloned()
                .collect();
            let stripped = Message {
                role: message.role,
                parts,
                metadata: message.metadata.clone(),
            };
            (index, stripped)
        });
    kept.collect()
}

/// Whether a conversation that keeps no tools stores anything of the message.
pub fn is_kept_without_tools(message: &Message) -> bool {
    let has_content = |part: &Part| matches!(part, Part::Text { .. } | Part::Media(_));
    message.role != Role::Tool && message.parts.iter().any(has_content)
}

/// Tool calls and results among `parts`, in order.
pub fn outline(parts: &[Part]) -> Vec<ToolMark> {
    parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolUse { id, name, .. } => Some(ToolMark::Call {
                id: id.clone(),
                name: name.clone(),
            }),
            Part::ToolResult { id, is_error, .. } => Some(ToolMark::Result {
                id: id.clone(),
                is_error: *is_error,
            }),
            Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => None,
        })
        .collect()
}

/// The text of one part; of a tool call its arguments; empty for media. Summarizers read it, and it
/// is counted and clipped.
pub fn part_text(part: &Part) -> &str {
    match part {
        Part::Text { text } | Part::ToolResult { text, .. } | Part::Reasoning { text, .. } => text,
        Part::ToolUse { input, .. } => input,
        Part::Media(_) => "",
    }
}

/// Approximate bytes of everything that a part holds.
pub fn part_bytes(part: &Part) -> usize {
    let of_media = |media: &Media| media.uri.len() + media.media_type.len();
    part_text(part).len()
        + match part {
            Part::Text { .. } => 0,
            Part::ToolUse { id, name, .. } => id.len() + name.len(),
            Part::ToolResult { id, media, .. } => {
                id.len() + media.iter().map(of_media).sum::<usize>()
            }
            Part::Media(media) => of_media(media),
            Part::Reasoning { signature, .. } => signature.len(),
        }
}

/// Separates two parts in a message's plain text.
pub const PART_JOIN: &str = "\n\n";

/// A message's plain text: the texts of its parts, joined by blank lines. Byte ranges of a message
/// are ranges of this text.
pub fn plain_text(parts: &[Part]) -> String {
    parts
        .iter()
        .map(part_text)
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(PART_JOIN)
}

/// Bytes of [`plain_text`], without building it.
pub fn plain_text_bytes(parts: &[Part]) -> usize {
    let texts = parts.iter().map(part_text).filter(|text| !text.is_empty());
    let (count, bytes) = texts.fold((0_usize, 0), |(n, bytes), text| (n + 1, bytes + text.len()));
    bytes + count.saturating_sub(1) * PART_JOIN.len()
}
