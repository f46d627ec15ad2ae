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
