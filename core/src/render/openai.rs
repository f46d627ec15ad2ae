//! OpenAI's chat format: each tool result is a message of its own, and the arguments of a call are
//! a string.

use serde::Serialize;

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
        content: &'c str,
    },
}

/// A single text as a string, anything else as a list.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'c> {
    Text(&'c str),
    Pieces(Vec<Piece<'c>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'c> {
    Text { text: &'c str },
    ImageUrl { image_url: Link<'c> },
    File { file: File<'c> },
}

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

pub(super) fn request(context: &Context) -> Request<'_> {
    let mut messages: Vec<Message<'_>> = Vec::with_capacity(context.messages.len());
    for message in &context.messages {
        match message.role {
            Role::System => {
                messages.extend(content(message).map(|content| Message::System { content }));
            }
            Role::Tool => messages.extend(message.parts.iter().filter_map(result)),
            Role::Assistant => {
                let tool_calls = message.parts.iter().filter_map(call).collect();
                messages.push(Message::Assistant {
                    content: content(message),
                    tool_calls,
                });
            }
            Role::User => match (messages.last_mut(), content(message)) {
                (Some(Message::User { content: before }), Some(more)) => before.extend(more),
                (_, more) => messages.extend(more.map(|content| Message::User { content })),
            },
        }
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
            Self::Text(text) => vec![Piece::Text { text }],
            Self::Pieces(pieces) => pieces,
        }
    }
}

fn content(message: &ContextMessage) -> Option<Content<'_>> {
    let mut pieces: Vec<Piece<'_>> = message
        .parts
        .iter()
        .filter_map(|part| piece(part, message.role))
        .collect();
    match pieces.as_slice() {
        [] => None,
        [Piece::Text { .. }] => match pieces.pop() {
            Some(Piece::Text { text }) => Some(Content::Text(text)),
            _ => None,
        },
        _ => Some(Content::Pieces(pieces)),
    }
}

fn piece(part: &Part, role: Role) -> Option<Piece<'_>> {
    match part {
        Part::Text { text } => (!text.is_empty()).then_some(Piece::Text { text }),
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

fn result(part: &Part) -> Option<Message<'_>> {
    let Part::ToolResult { id, text, .. } = part else {
        return None;
    };
    Some(Message::Tool {
        tool_call_id: id,
        content: text,
    })
}
