//! Anthropic's format: tool results belong to the user, and user and assistant alternate.

use serde::Serialize;
use serde_json::value::RawValue;

use super::RenderedMessages;
use crate::{
    cache::CacheTtl,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolResult {
        tool_use_id: &'c str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'c>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: MediaSource<'c>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Document {
        source: MediaSource<'c>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

/// The mark of a block up to which the provider caches.
#[derive(Serialize)]
struct CacheControl {
    r#type: &'static str,
    /// Absent: five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl From<CacheTtl> for CacheControl {
    fn from(ttl: CacheTtl) -> Self {
        Self {
            r#type: "ephemeral",
            ttl: match ttl {
                CacheTtl::FiveMinutes => None,
                CacheTtl::OneHour => Some("1h"),
            },
        }
    }
}

impl Block<'_> {
    /// The block with a mark, if there is one. Reasoning cannot have one.
    fn with_mark(mut self, ttl: Option<CacheTtl>) -> Self {
        match &mut self {
            Self::Text { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. } => *cache_control = ttl.map(CacheControl::from),
            Self::Thinking { .. } | Self::RedactedThinking { .. } => {}
        }
        self
    }
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

/// The index that stands for the system prompt.
const SYSTEM: i32 = -1;

pub(super) fn request<'c>(
    context: &'c Context,
    rendered: &mut RenderedMessages<'c>,
) -> Request<'c> {
    let mut request = Request {
        system: Vec::new(),
        messages: Vec::with_capacity(context.messages.len()),
    };
    for (index, message) in context.messages.iter().enumerate() {
        let parts = message.parts.iter().enumerate();
        let blocks = parts.filter_map(|(part_index, part)| {
            let ttl = context.mark_at(index, part_index);
            block(part, message.role).map(|block| block.with_mark(ttl))
        });
        let role = match (message.segment, message.role) {
            (Segment::SystemPrompt, _) => {
                request.system.extend(blocks);
                rendered.record(index, SYSTEM);
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
        rendered.record_last(index, request.messages.len());
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
            cache_control: None,
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
                cache_control: None,
            })
        }
        Part::Media(media) => media_block(media, MediaPosition::of(role)),
    }
}

/// A block of text; None for a blank text, which Anthropic refuses.
fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text {
        text,
        cache_control: None,
    })
}

fn media_block(media: &Media, position: MediaPosition) -> Option<Block<'_>> {
    let sendable = sendable(media, Format::AnthropicMessages, position)?;
    let media_type = sendable.media_type;
    let source = match sendable.source {
        Source::Inline(data) => MediaSource::Base64 { media_type, data },
        Source::Url(url) => MediaSource::Url { url },
    };
    Some(if media_type == PDF {
        Block::Document {
            source,
            cache_control: None,
        }
    } else {
        Block::Image {
            source,
            cache_control: None,
        }
    })
}
