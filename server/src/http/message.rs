//! Messages as the HTTP API shows them.

use std::collections::BTreeMap;

use anneal_proto::{convert::time, v1 as pb};
use serde::Serialize;
use utoipa::ToSchema;

use super::session::unix_millis;

/// A message as it is stored.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    /// 1, 2, 3 … within the session, without gaps.
    pub(super) id: i64,
    #[schema(inline)]
    role: Role,
    /// The content, byte for byte. Empty: it was erased.
    content: Vec<Block>,
    /// Milliseconds since 1970.
    created_at: i64,
    /// The turn that the message belongs to; 0 before the first user message.
    turn: i32,
    /// Tokens of the message.
    tokens: u64,
    /// Whether `tokens` is an estimate that will be replaced.
    tokens_estimated: bool,
    /// The client's labels.
    metadata: BTreeMap<String, String>,
    /// Number of the version that `content` and `metadata` are: 1, 2, 3 … 1: it was never edited.
    version: i32,
    /// When that version was stored, in milliseconds since 1970. Absent: it was never edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    edited_at: Option<i64>,
    /// When the message was withdrawn, in milliseconds since 1970. Absent: it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawn_at: Option<i64>,
    /// Whether the content of the withdrawn message is not kept any more. Absent: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    erased: bool,
    /// Whether it is an answer that was stopped before its end. Absent: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

/// The author's role.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
    Tool,
    System,
}

/// One part of a message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text(Text),
    ToolUse(ToolUse),
    ToolResult(ToolResult),
    Media(Media),
    Reasoning(Reasoning),
}

/// Plain text.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Text {
    text: String,
}

/// A tool call of the model.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ToolUse {
    /// The id that the provider gave the call.
    pub(super) id: String,
    /// The tool's name.
    pub(super) name: String,
    /// The arguments: JSON text, byte for byte as the model wrote it, valid or not.
    pub(super) input: String,
}

/// The result of a tool call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult {
    /// The id of the call.
    tool_use_id: String,
    text: String,
    /// Whether the tool failed.
    is_error: bool,
    media: Vec<Media>,
}

/// A picture or file. The message stores no bytes of it beside `uri`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
pub(super) struct Media {
    /// Its URL, or a data: URI.
    uri: String,
    media_type: String,
    /// 0: unknown.
    size_bytes: u64,
}

/// The model's reasoning before its answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reasoning {
    /// Empty if the provider hides it.
    text: String,
    /// The provider's signature, without which it does not accept the reasoning again.
    signature: String,
    /// The provider that signed it.
    provider: String,
    /// Whether the provider hides the reasoning.
    redacted: bool,
}

impl From<pb::Message> for Message {
    fn from(message: pb::Message) -> Self {
        let role = match message.role() {
            pb::Role::Assistant => Role::Assistant,
            pb::Role::Tool => Role::Tool,
            pb::Role::System => Role::System,
            pb::Role::User | pb::Role::Unspecified => Role::User,
        };
        Self {
            id: message.message_id,
            role,
            content: message
                .parts
                .into_iter()
                .filter_map(|part| part.part.map(block))
                .collect(),
            created_at: unix_millis(message.created_time.as_ref()),
            turn: message.turn,
            tokens: message.tokens.map_or(0, |count| count.tokens),
            tokens_estimated: message.tokens.is_some_and(|count| count.estimated),
            metadata: message.metadata.into_iter().collect(),
            version: message.version,
            edited_at: message.edited_time.map(time::millis),
            withdrawn_at: message.withdrawn_time.map(time::millis),
            erased: message.erased,
            stopped: message.stopped,
        }
    }
}

impl From<pb::ToolUsePart> for ToolUse {
    fn from(part: pb::ToolUsePart) -> Self {
        Self {
            id: part.id,
            name: part.name,
            input: part.input,
        }
    }
}

fn block(part: pb::part::Part) -> Block {
    use pb::part::Part as Wire;
    match part {
        Wire::Text(part) => Block::Text(Text { text: part.text }),
        Wire::ToolUse(part) => Block::ToolUse(part.into()),
        Wire::ToolResult(part) => Block::ToolResult(ToolResult {
            tool_use_id: part.tool_use_id,
            text: part.text,
            is_error: part.is_error,
            media: part.media.into_iter().map(media).collect(),
        }),
        Wire::Media(part) => Block::Media(media(part)),
        Wire::Reasoning(part) => Block::Reasoning(Reasoning {
            text: part.text,
            signature: part.signature,
            provider: part.provider,
            redacted: part.redacted,
        }),
    }
}

fn media(part: pb::MediaPart) -> Media {
    Media {
        uri: part.uri,
        media_type: part.media_type,
        size_bytes: part.size_bytes,
    }
}
