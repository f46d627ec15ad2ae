//! OpenAI's chat format: each tool result is a message of its own, and the arguments of a call are
//! a string.

use serde::Serialize;

use super::RenderedMessages;
use crate::{
    context::{Context, ContextMessage},
    message::{Media, Part, Role},
    provider_format::{
        Format,
        media::{MediaPosition, PDF, Source, sendable},
    },
};

#[derive(Serialize)]
pub(super) struct Request<'c> {
    messages: Vec<Message<'c>>,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'c> {
    System {
        content: Content<'c>,
    },
    User {
        content: Content<'c>,
    },
    Assistant {
        content: Option<Content<'c>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'c>>,
    },
    Tool {
        tool_call_id: &'c str,
        content: Content<'c>,
    },
}

/// A single text without a mark as a string, anything else as a list.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'c> {
    Text(&'c str),
    Pieces(Vec<Piece<'c>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'c> {
    Text {
        text: &'c str,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_cache_breakpoint: Option<Breakpoint>,
    },
    ImageUrl {
        image_url: Link<'c>,
    },
    File {
        file: File<'c>,
    },
}

/// The mark of a text up to which the provider caches.
#[derive(Serialize)]
struct Breakpoint {
    mode: &'static str,
}

const EXPLICIT: Breakpoint = Breakpoint { mode: "explicit" };

#[derive(Serialize)]
struct Link<'c> {
    url: &'c str,
}

#[derive(Serialize)]
struct File<'c> {
    filename: &'static str,
    file_data: &'c str,
}

#[derive(Serialize)]
struct Call<'c> {
    id: &'c str,
    r#type: &'static str,
    function: Function<'c>,
}

#[derive(Serialize)]
struct Function<'c> {
    name: &'c str,
    arguments: &'c str,
}

pub(super) fn request<'c>(
    context: &'c Context,
    rendered: &mut RenderedMessages<'c>,
) -> Request<'c> {
    let mut messages: Vec<Message<'_>> = Vec::with_capacity(context.messages.len());
    for (index, message) in context.messages.iter().enumerate() {
        let is_marked = |place: usize| context.mark_at(index, place).is_some();
        match message.role {
            Role::System => match content(message, &is_marked) {
                Some(text) => messages.push(Message::System { content: text }),
                None => continue,
            },
            Role::Tool => {
                for (place, part) in message.parts.iter().enumerate() {
                    if let Some(result) = result(part, is_marked(place)) {
                        messages.push(result);
                        let parts = place..place + 1;
                        rendered.record_parts(index, parts, messages.len());
                    }
                }
                continue;
            }
            Role::Assistant => {
                let tool_calls = message.parts.iter().filter_map(call).collect();
                messages.push(Message::Assistant {
                    content: content(message, &is_marked),
                    tool_calls,
                });
            }
            Role::User => match (messages.last_mut(), content(message, &is_marked)) {
                (Some(Message::User { content: before }), Some(more)) => before.extend(more),
                (_, Some(text)) => messages.push(Message::User { content: text }),
                (_, None) => continue,
            },
        }
        rendered.record_last(index, messages.len());
    }
    Request { messages }
}

impl<'c> Content<'c> {
    fn extend(&mut self, more: Self) {
        let mut pieces = std::mem::replace(self, Self::Text("")).into_pieces();
        pieces.extend(more.into_pieces());
        *self = Self::Pieces(pieces);
    }

    fn into_pieces(self) -> Vec<Piece<'c>> {
        match self {
            Self::Text(text) => vec![text_piece(text, false)],
            Self::Pieces(pieces) => pieces,
        }
    }
}

fn content<'c>(
    message: &'c ContextMessage,
    is_marked: &impl Fn(usize) -> bool,
) -> Option<Content<'c>> {
    let parts = message.parts.iter().enumerate();
    let pieces: Vec<Piece<'_>> = parts
        .filter_map(|(place, part)| piece(part, message.role, is_marked(place)))
        .collect();
    match pieces.as_slice() {
        [] => None,
        [
            Piece::Text {
                text,
                prompt_cache_breakpoint: None,
            },
        ] => Some(Content::Text(text)),
        _ => Some(Content::Pieces(pieces)),
    }
}

fn text_piece(text: &str, is_marked: bool) -> Piece<'_> {
    Piece::Text {
        text,
        prompt_cache_breakpoint: is_marked.then_some(EXPLICIT),
    }
}

fn piece(part: &Part, role: Role, is_marked: bool) -> Option<Piece<'_>> {
    match part {
        Part::Text { text } => (!text.is_empty()).then(|| text_piece(text, is_marked)),
        Part::Media(media) => media_piece(media, MediaPosition::of(role)),
        Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => None,
    }
}

fn media_piece(media: &Media, position: MediaPosition) -> Option<Piece<'_>> {
    let sendable = sendable(media, Format::OpenAiChat, position)?;
    let (Source::Inline(url) | Source::Url(url)) = sendable.source;
    Some(if sendable.media_type == PDF {
        Piece::File {
            file: File {
                filename: "document.pdf",
                file_data: url,
            },
        }
    } else {
        Piece::ImageUrl {
            image_url: Link { url },
        }
    })
}

fn call(part: &Part) -> Option<Call<'_>> {
    let Part::ToolUse { id, name, input } = part else {
        return None;
    };
    Some(Call {
        id,
        r#type: "function",
        function: Function {
            name,
            arguments: input,
        },
    })
}

fn result(part: &Part, is_marked: bool) -> Option<Message<'_>> {
    let Part::ToolResult { id, text, .. } = part else {
        return None;
    };
    Some(Message::Tool {
        tool_call_id: id,
        content: if is_marked {
            Content::Pieces(vec![text_piece(text, true)])
        } else {
            Content::Text(text)
        },
    })
}
