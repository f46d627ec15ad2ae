//! Anthropic's messages: tool results are the user's, and user and assistant alternate.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Format, json,
    media::{PDF, Place, Source, sendable},
};
use crate::{
    context::{Context, Segment},
    message::{Media, Part, Role},
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
        source: Origin<'c>,
    },
    Document {
        source: Origin<'c>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Origin<'c> {
    Base64 { media_type: &'static str, data: &'c str },
    Url { url: &'c str },
}

pub(super) fn request(context: &Context) -> Request<'_> {
    let mut request = Request { system: Vec::new(), messages: Vec::with_capacity(context.messages.len()) };
    for message in &context.messages {
        let blocks = message.parts.iter().filter_map(|part| block(part, message.role));
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
            _ => request.messages.push(Message { role, content: blocks.collect() }),
        }
    }
    request
}

fn block(part: &Part, role: Role) -> Option<Block<'_>> {
    match part {
        Part::Text { text } => spoken(text),
        Part::Reasoning { signature, redacted: true, .. } => Some(Block::RedactedThinking { data: signature }),
        Part::Reasoning { text, signature, .. } => Some(Block::Thinking { thinking: text, signature }),
        Part::ToolUse { id, name, input } => Some(Block::ToolUse { id, name, input: json::raw(input) }),
        Part::ToolResult { id, text, is_error, media } => {
            let pictures = media.iter().filter_map(|media| picture(media, Place::of_result(*is_error)));
            let content = spoken(text).into_iter().chain(pictures).collect();
            Some(Block::ToolResult { tool_use_id: id, content, is_error: *is_error })
        }
        Part::Media(media) => picture(media, Place::of(role)),
    }
}

/// A block of text; blank ones are refused.
fn spoken(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text })
}

fn picture(media: &Media, place: Place) -> Option<Block<'_>> {
    let sendable = sendable(media, Format::AnthropicMessages, place)?;
    let media_type = sendable.media_type;
    let source = match sendable.source {
        Source::Inline(data) => Origin::Base64 { media_type, data },
        Source::Url(url) => Origin::Url { url },
    };
    Some(if media_type == PDF { Block::Document { source } } else { Block::Image { source } })
}
