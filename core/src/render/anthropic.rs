//! Anthropic's format: tool results belong to the user, and user and assistant alternate.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    context::{Context, Segment},
    message::{Media, Part, Role},
    provider_format::{
        Format, json,
        media::{MediaPosition, PDF, Source, sendable},
    },
};

#[derive(Serialize)]
pub(super) struct Request<'c> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'c>>,
    messages: Vec<Message<'c>>,
}

#[derive(Serialize)]
struct Message<'c> {
    role: &'static str,
    content: Vec<Block<'c>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'c> {
    Text {
        text: &'c str,
    },
    Thinking {
        thinking: &'c str,
        signature: &'c str,
    },
    RedactedThinking {
        data: &'c str,
    },
    ToolUse {
        id: &'c str,
        name: &'c str,
        input: &'c RawValue,
    },
    ToolResult {
        tool_use_id: &'c str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'c>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Image {
        source: MediaSource<'c>,
    },
    Document {
        source: MediaSource<'c>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MediaSource<'c> {
    Base64 {
        media_type: &'static str,
        data: &'c str,
    },
    Url {
        url: &'c str,
    },
}

pub(super) fn request(context: &Context) -> Request<'_> {
    let mut request = Request {
        system: Vec::new(),
        messages: Vec::with_capacity(context.messages.len()),
    };
    for message in &context.messages {
        let blocks = message
            .parts
            .iter()
            .filter_map(|part| block(part, message.role));
        let role = match (message.segment, message.role) {
            (Segment::SystemPrompt, _) => {
                request.system.extend(blocks);
                continue;
            }
            (_, Role::Assistant) => "assistant",
            (_, Role::User | Role::Tool | Role::System) => "user",
        };
        match request.messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => request.messages.push(Message {
                role,
                content: blocks.collect(),
            }),
        }
    }
    request
}

fn block(part: &Part, role: Role) -> Option<Block<'_>> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Reasoning {
            signature,
            redacted: true,
            ..
        } => Some(Block::RedactedThinking { data: signature }),
        Part::Reasoning {
            text, signature, ..
        } => Some(Block::Thinking {
            thinking: text,
            signature,
        }),
        Part::ToolUse { id, name, input } => Some(Block::ToolUse {
            id,
            name,
            input: json::raw(input),
        }),
        Part::ToolResult {
            id,
            text,
            is_error,
            media,
        } => {
            let media_blocks = media
                .iter()
                .filter_map(|media| media_block(media, MediaPosition::of_result(*is_error)));
            let content = text_block(text).into_iter().chain(media_blocks).collect();
            Some(Block::ToolResult {
                tool_use_id: id,
                content,
                is_error: *is_error,
            })
        }
        Part::Media(media) => media_block(media, MediaPosition::of(role)),
    }
}

/// A block of text; None for a blank text, which Anthropic refuses.
fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text })
}

fn media_block(media: &Media, position: MediaPosition) -> Option<Block<'_>> {
    let sendable = sendable(media, Format::AnthropicMessages, position)?;
    let media_type = sendable.media_type;
    let source = match sendable.source {
        Source::Inline(data) => MediaSource::Base64 { media_type, data },
        Source::Url(url) => MediaSource::Url { url },
    };
    Some(if media_type == PDF {
        Block::Document { source }
    } else {
        Block::Image { source }
    })
}
