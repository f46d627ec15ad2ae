//! The content blocks that Anthropic and claw0 share, and `data:` URIs for other formats too.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    ImportOutcome,
    json::{self, Fields, Notes, Unreadable, short_name},
};

/// The provider of reasoning blocks in these formats.
const PROVIDER: &str = "anthropic";

/// The parts of a `content` field: a string, or a list of blocks.
pub(crate) fn parse_content(raw: &str, notes: &mut Notes) -> Result<Vec<Part>, Unreadable> {
    if json::is_text(raw) {
        return Ok(vec![Part::Text {
            text: json::text(raw)?,
        }]);
    }
    if !raw.starts_with('[') {
        return Err(Unreadable::new(
            "content is neither a text nor a list of blocks",
        ));
    }
    let mut parts = Vec::new();
    for raw in json::list(raw)? {
        parts.extend(parse_block(raw, notes)?);
    }
    Ok(parts)
}

/// A message of this role with these parts. A user message that holds tool results and other parts
/// becomes two: a tool message with the results, then a user message with the rest.
pub(crate) fn split_tool_results(role: Role, parts: Vec<Part>, notes: &mut Notes) -> Vec<Message> {
    let message = |role, parts| Message {
        role,
        parts,
        metadata: BTreeMap::new(),
    };
    let is_result = |part: &Part| matches!(part, Part::ToolResult { .. });
    if role != Role::User || !parts.iter().any(is_result) {
        return vec![message(role, parts)];
    }
    if !parts.is_sorted_by_key(|part| !is_result(part)) {
        notes.push((
            ImportOutcome::Changed,
            "tool results were moved before the other parts of their message".into(),
        ));
    }
    let (results, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_result);
    let others = (!others.is_empty()).then(|| message(Role::User, others));
    std::iter::once(message(Role::Tool, results))
        .chain(others)
        .collect()
}

/// The part of a block. None if the block was set aside, with a note.
fn parse_block(raw: &str, notes: &mut Notes) -> Result<Option<Part>, Unreadable> {
    let block = Fields::parse(raw)?;
    let kind = block.required_text("type")?;
    let read: &[&str] = match kind.as_str() {
        "text" => &["type", "text"],
        "tool_use" => &["type", "id", "name", "input"],
        "tool_result" => &["type", "tool_use_id", "content", "is_error"],
        "thinking" => &["type", "thinking", "signature"],
        "redacted_thinking" => &["type", "data"],
        "image" => &["type", "source"],
        other => return Ok(set_aside(other, notes)),
    };
    notes.note_unread_fields(&block, read, &format!("{kind} blocks"));
    Ok(Some(match kind.as_str() {
        "text" => Part::Text {
            text: block.required_text("text")?,
        },
        "tool_use" => Part::ToolUse {
            id: block.required_text("id")?,
            name: block.required_text("name")?,
            input: block.raw("input").unwrap_or("{}").to_owned(),
        },
        "tool_result" => parse_tool_result(block.required_text("tool_use_id")?, &block, notes)?,
        "thinking" => reasoning(
            block.required_text("thinking")?,
            block.text("signature")?.unwrap_or_default(),
            false,
        ),
        "redacted_thinking" => reasoning(String::new(), block.required_text("data")?, true),
        _ => match parse_image(&block)? {
            Some(media) => Part::Media(media),
            None => return Ok(set_aside("image without an address", notes)),
        },
    }))
}

fn set_aside(kind: &str, notes: &mut Notes) -> Option<Part> {
    notes.push((
        ImportOutcome::SetAside,
        format!("a block of type {}", short_name(kind)),
    ));
    None
}

fn reasoning(text: String, signature: String, redacted: bool) -> Part {
    Part::Reasoning {
        text,
        signature,
        provider: PROVIDER.into(),
        redacted,
    }
}

/// A tool result: its texts joined with line ends, its images as media.
pub(crate) fn parse_tool_result(
    id: String,
    fields: &Fields,
    notes: &mut Notes,
) -> Result<Part, Unreadable> {
    let mut texts = Vec::new();
    let mut media = Vec::new();
    let parts = fields
        .raw("content")
        .map_or_else(|| Ok(Vec::new()), |raw| parse_content(raw, notes))?;
    for part in parts {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {
                notes.push((
                    ImportOutcome::SetAside,
                    "a block within a tool result that is neither text nor image".into(),
                ));
            }
        }
    }
    Ok(Part::ToolResult {
        id,
        text: texts.join("\n"),
        is_error: fields.is_true("is_error"),
        media,
    })
}

fn parse_image(block: &Fields) -> Result<Option<Media>, Unreadable> {
    let source = Fields::parse(
        block
            .raw("source")
            .ok_or_else(|| Unreadable::new("an image needs a source"))?,
    )?;
    if let Some(uri) = source.text("url")? {
        return Ok(Some(Media {
            media_type: media_type(&uri),
            uri,
            bytes: 0,
            tokens: 0,
        }));
    }
    let Some(base64) = source.text("data")? else {
        return Ok(None);
    };
    let media_type = source
        .text("media_type")?
        .unwrap_or_else(|| "image/*".into());
    Ok(Some(Media {
        uri: data_uri(&media_type, &base64),
        media_type,
        bytes: 0,
        tokens: 0,
    }))
}

/// A base64 `data:` URI.
pub(crate) fn data_uri(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

/// The media type and the base64 of a `data:` URI in base64. None for any other URI.
pub(crate) fn parse_data_uri(uri: &str) -> Option<(&str, &str)> {
    uri.strip_prefix("data:")?.split_once(";base64,")
}

/// The media type that a `data:` URI names; `image/*` if the URI names none.
pub(crate) fn media_type(uri: &str) -> String {
    let named = uri
        .strip_prefix("data:")
        .and_then(|rest| rest.split([';', ',']).next());
    named
        .filter(|named| !named.is_empty())
        .unwrap_or("image/*")
        .to_owned()
}

/// A block in the written file.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'m> {
    Text {
        text: &'m str,
    },
    Image {
        source: Source<'m>,
    },
    ToolUse {
        id: &'m str,
        name: &'m str,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: &'m str,
        content: ResultContent<'m>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Thinking {
        thinking: &'m str,
        signature: &'m str,
    },
    RedactedThinking {
        data: &'m str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum ResultContent<'m> {
    Text(&'m str),
    Blocks(Vec<ResultBlock<'m>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResultBlock<'m> {
    Text { text: &'m str },
    Image { source: Source<'m> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Source<'m> {
    Base64 { media_type: &'m str, data: &'m str },
    Url { url: &'m str },
}

/// The parts as a `content` field. It is a string if there is one text, or if no part has a block;
/// otherwise a list of blocks.
pub(crate) fn content_json(parts: &[Part]) -> String {
    match parts {
        [Part::Text { text }] => json::quoted(text),
        parts if parts.iter().all(|part| block_of(part).is_none()) => json::quoted(""),
        parts => blocks_json(parts),
    }
}

/// The parts as a list of blocks. Parts without a block are left out.
pub(crate) fn blocks_json(parts: &[Part]) -> String {
    let blocks: Vec<Block> = parts.iter().filter_map(block_of).collect();
    serde_json::to_string(&blocks).expect("texts and lists are always JSON")
}

fn block_of(part: &Part) -> Option<Block<'_>> {
    Some(match part {
        Part::Text { text } => Block::Text { text },
        Part::Media(media) => Block::Image {
            source: source(media)?,
        },
        Part::ToolUse { id, name, input } => Block::ToolUse {
            id,
            name,
            input: json::object(input),
        },
        Part::ToolResult {
            id,
            text,
            is_error,
            media,
        } => Block::ToolResult {
            tool_use_id: id,
            content: result_content(text, media),
            is_error: *is_error,
        },
        Part::Reasoning {
            signature,
            redacted: true,
            provider,
            ..
        } if provider == PROVIDER => Block::RedactedThinking { data: signature },
        Part::Reasoning {
            text,
            signature,
            redacted: false,
            provider,
        } if provider == PROVIDER => Block::Thinking {
            thinking: text,
            signature,
        },
        // A reasoning block is valid only for the provider that signed it.
        Part::Reasoning { .. } => return None,
    })
}

/// The content of a tool result: its text, or a list of its text and its images.
pub(crate) fn result_content<'m>(text: &'m str, media: &'m [Media]) -> ResultContent<'m> {
    let images: Vec<ResultBlock> = media
        .iter()
        .filter_map(source)
        .map(|source| ResultBlock::Image { source })
        .collect();
    if images.is_empty() {
        return ResultContent::Text(text);
    }
    let text_block = (!text.is_empty()).then_some(ResultBlock::Text { text });
    ResultContent::Blocks(text_block.into_iter().chain(images).collect())
}

/// The source of an image. None for other media.
fn source(media: &Media) -> Option<Source<'_>> {
    if !media.media_type.starts_with("image/") {
        return None;
    }
    Some(match parse_data_uri(&media.uri) {
        Some((media_type, data)) => Source::Base64 { media_type, data },
        None => Source::Url { url: &media.uri },
    })
}
