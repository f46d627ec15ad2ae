//! Gemini's format: calls and results are matched by name and order.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::RenderedMessages;
use crate::{
    context::{Context, Segment},
    message::{Part, Role},
    provider_format::{
        Format, json,
        media::{MediaPosition, Source, sendable},
    },
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'c>>,
    contents: Vec<Content<'c>>,
}

#[derive(Serialize)]
struct Instruction<'c> {
    parts: Vec<Piece<'c>>,
}

#[derive(Serialize)]
struct Content<'c> {
    role: &'static str,
    parts: Vec<Piece<'c>>,
    /// Whether it holds tool results.
    #[serde(skip)]
    holds_results: bool,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Piece<'c> {
    Text {
        text: &'c str,
    },
    Call {
        function_call: Call<'c>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'c str>,
    },
    Response {
        function_response: Response<'c>,
    },
    Inline {
        inline_data: Inline<'c>,
    },
    File {
        file_data: File<'c>,
    },
}

#[derive(Serialize)]
struct Call<'c> {
    name: &'c str,
    args: &'c RawValue,
}

#[derive(Serialize)]
struct Response<'c> {
    name: &'c str,
    response: Outcome<'c>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<'c> {
    Result(&'c str),
    Error(&'c str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'c> {
    mime_type: &'static str,
    data: &'c str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'c> {
    mime_type: &'static str,
    file_uri: &'c str,
}

/// The index that stands for the system prompt.
const SYSTEM: i32 = -1;

pub(super) fn request<'c>(
    context: &'c Context,
    rendered: &mut RenderedMessages<'c>,
) -> Request<'c> {
    let mut request = Request {
        system_instruction: None,
        contents: Vec::with_capacity(context.messages.len()),
    };
    let mut names: HashMap<&str, &str> = HashMap::new();
    for (index, message) in context.messages.iter().enumerate() {
        let pieces = pieces(&message.parts, message.role, &mut names);
        if pieces.is_empty() {
            continue;
        }
        if message.segment == Segment::SystemPrompt {
            request
                .system_instruction
                .get_or_insert_with(|| Instruction { parts: Vec::new() })
                .parts
                .extend(pieces);
            rendered.record(index, SYSTEM);
            continue;
        }
        let role = if message.role == Role::Assistant {
            "model"
        } else {
            "user"
        };
        // Tool results get a content of their own: nothing else may be in it.
        let holds_results = message.role == Role::Tool;
        match request.contents.last_mut() {
            Some(last) if last.role == role && last.holds_results == holds_results => {
                last.parts.extend(pieces);
            }
            _ => request.contents.push(Content {
                role,
                parts: pieces,
                holds_results,
            }),
        }
        rendered.record_last(index, request.contents.len());
    }
    request
}

/// The parts of one message in Gemini's form. The signature of a reasoning part goes to the call
/// directly after it. `names`: the tool's name for each call id so far.
fn pieces<'c>(
    parts: &'c [Part],
    role: Role,
    names: &mut HashMap<&'c str, &'c str>,
) -> Vec<Piece<'c>> {
    let mut pieces = Vec::with_capacity(parts.len());
    let mut thought_signature = None;
    for part in parts {
        let call_signature = thought_signature.take();
        match part {
            Part::Text { text } if text.trim().is_empty() => {}
            Part::Text { text } => pieces.push(Piece::Text { text }),
            Part::Reasoning { signature, .. } => thought_signature = Some(signature.as_str()),
            Part::ToolUse { id, name, input } => {
                names.insert(id, name);
                let function_call = Call {
                    name,
                    args: json::raw(input),
                };
                pieces.push(Piece::Call {
                    function_call,
                    thought_signature: call_signature,
                });
            }
            Part::ToolResult {
                id, text, is_error, ..
            } => {
                let response = if *is_error {
                    Outcome::Error(text)
                } else {
                    Outcome::Result(text)
                };
                let name = names.get(id.as_str()).copied().unwrap_or("unknown");
                pieces.push(Piece::Response {
                    function_response: Response { name, response },
                });
            }
            Part::Media(media) => {
                pieces.extend(
                    sendable(media, Format::GeminiContents, MediaPosition::of(role)).map(
                        |sendable| {
                            let mime_type = sendable.media_type;
                            match sendable.source {
                                Source::Inline(data) => Piece::Inline {
                                    inline_data: Inline { mime_type, data },
                                },
                                Source::Url(file_uri) => Piece::File {
                                    file_data: File {
                                        mime_type,
                                        file_uri,
                                    },
                                },
                            }
                        },
                    ),
                );
            }
        }
    }
    pieces
}
