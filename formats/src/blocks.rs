//! Content blocks as Anthropic and claw0 have them.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    Fate,
    json::{self, Bad, Fields, Notes, named},
};

/// Who signs thoughts in these blocks.
const PROVIDER: &str = "anthropic";

/// The parts of a content: a text, or a list of blocks.
pub(crate) fn content(raw: &str, notes: &mut Notes) -> Result<Vec<Part>, Bad> {
    if json::is_text(raw) {
        return Ok(vec![Part::Text { text: json::text(raw)? }]);
    }
    if !raw.starts_with('[') {
        return Err(Bad::new("content is neither a text nor a list of blocks"));
    }
    let mut parts = Vec::new();
    for raw in json::list(raw)? {
        parts.extend(block(raw, notes)?);
    }
    Ok(parts)
}

/// A message of this role. A user's that answers tools and says something too becomes two: the tools', and the user's.
pub(crate) fn messages(role: Role, parts: Vec<Part>, notes: &mut Notes) -> Vec<Message> {
    let message = |role, parts| Message { role, parts, metadata: BTreeMap::new() };
    let is_result = |part: &Part| matches!(part, Part::ToolResult { .. });
    if role != Role::User || !parts.iter().any(is_result) {
        return vec![message(role, parts)];
    }
    if !parts.is_sorted_by_key(|part| !is_result(part)) {
        notes.push((Fate::Changed, "tool results were moved before what was said in front of them".into()));
    }
    let (results, said): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_result);
    let said = (!said.is_empty()).then(|| message(Role::User, said));
    std::iter::once(message(Role::Tool, results)).chain(said).collect()
}

/// One block's part; None when it is set aside.
fn block(raw: &str, notes: &mut Notes) -> Result<Option<Part>, Bad> {
    let block = Fields::parse(raw)?;
    let kind = block.must("type")?;
    let read: &[&str] = match kind.as_str() {
        "text" => &["type", "text"],
        "tool_use" => &["type", "id", "name", "input"],
        "tool_result" => &["type", "tool_use_id", "content", "is_error"],
        "thinking" => &["type", "thinking", "signature"],
        "redacted_thinking" => &["type", "data"],
        "image" => &["type", "source"],
        other => return Ok(aside(other, notes)),
    };
    notes.unread(&block, read, &format!("{kind} blocks"));
    Ok(Some(match kind.as_str() {
        "text" => Part::Text { text: block.must("text")? },
        "tool_use" => Part::ToolUse {
            id: block.must("id")?,
            name: block.must("name")?,
            input: block.raw("input").unwrap_or("{}").to_owned(),
        },
        "tool_result" => result(block.must("tool_use_id")?, &block, notes)?,
        "thinking" => reasoning(block.must("thinking")?, block.text("signature")?.unwrap_or_default(), false),
        "redacted_thinking" => reasoning(String::new(), block.must("data")?, true),
        _ => match image(&block)? {
            Some(media) => Part::Media(media),
            None => return Ok(aside("image without an address", notes)),
        },
    }))
}

fn aside(kind: &str, notes: &mut Notes) -> Option<Part> {
    notes.push((Fate::SetAside, format!("a block of type {}", named(kind))));
    None
}

fn reasoning(text: String, signature: String, redacted: bool) -> Part {
    Part::Reasoning { text, signature, provider: PROVIDER.into(), redacted }
}

/// A tool's result: its texts as one, its pictures beside them.
pub(crate) fn result(id: String, fields: &Fields, notes: &mut Notes) -> Result<Part, Bad> {
    let mut texts = Vec::new();
    let mut media = Vec::new();
    let said = fields.raw("content").map_or_else(|| Ok(Vec::new()), |raw| content(raw, notes))?;
    for part in said {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {
                notes.push((Fate::SetAside, "a block within a tool result that is neither text nor image".into()));
            }
        }
    }
    Ok(Part::ToolResult { id, text: texts.join("\n"), is_error: fields.is("is_error"), media })
}

fn image(block: &Fields) -> Result<Option<Media>, Bad> {
    let source = Fields::parse(block.raw("source").ok_or_else(|| Bad::new("an image needs a source"))?)?;
    if let Some(uri) = source.text("url")? {
        return Ok(Some(Media { media_type: media_type(&uri), uri, bytes: 0, tokens: 0 }));
    }
    let Some(bytes) = source.text("data")? else { return Ok(None) };
    let media_type = source.text("media_type")?.unwrap_or_else(|| "image/*".into());
    Ok(Some(Media { uri: data_uri(&media_type, &bytes), media_type, bytes: 0, tokens: 0 }))
}

/// A data: URI of base64.
pub(crate) fn data_uri(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

/// The media type and the base64 of a data: URI; None where it is another address.
pub(crate) fn of_data_uri(uri: &str) -> Option<(&str, &str)> {
    uri.strip_prefix("data:")?.split_once(";base64,")
}

/// The media type that a data: URI names; `image/*` for other addresses.
pub(crate) fn media_type(uri: &str) -> String {
    let named = uri.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
    named.filter(|named| !named.is_empty()).unwrap_or("image/*").to_owned()
}

/// A block as it is written.
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
        content: Content<'m>,
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
pub(crate) enum Content<'m> {
    /// A single text.
    Text(&'m str),
    /// Several blocks.
    Blocks(Vec<ResultBlock<'m>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResultBlock<'m> {
    /// A text.
    Text {
        /// The text.
        text: &'m str,
    },
    /// A picture.
    Image {
        /// Where it is.
        source: Source<'m>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Source<'m> {
    /// Its bytes.
    Base64 {
        /// Its type.
        media_type: &'m str,
        /// The bytes.
        data: &'m str,
    },
    /// Its address.
    Url {
        /// The address.
        url: &'m str,
    },
}

/// The parts as a content: a text where there is nothing else, never a list without blocks.
pub(crate) fn written(parts: &[Part]) -> String {
    match parts {
        [Part::Text { text }] => json::quoted(text),
        parts if parts.iter().all(|part| block_of(part).is_none()) => json::quoted(""),
        parts => blocks(parts),
    }
}

/// The parts as a list of blocks; what has no block is left out.
pub(crate) fn blocks(parts: &[Part]) -> String {
    let blocks: Vec<Block> = parts.iter().filter_map(block_of).collect();
    serde_json::to_string(&blocks).expect("texts and lists are always JSON")
}

fn block_of(part: &Part) -> Option<Block<'_>> {
    Some(match part {
        Part::Text { text } => Block::Text { text },
        Part::Media(media) => Block::Image { source: source(media)? },
        Part::ToolUse { id, name, input } => Block::ToolUse { id, name, input: json::object(input) },
        Part::ToolResult { id, text, is_error, media } => {
            Block::ToolResult { tool_use_id: id, content: result_content(text, media), is_error: *is_error }
        }
        Part::Reasoning { signature, redacted: true, provider, .. } if provider == PROVIDER => {
            Block::RedactedThinking { data: signature }
        }
        // only its own signer takes a thought back
        Part::Reasoning { text, signature, redacted: false, provider } if provider == PROVIDER => {
            Block::Thinking { thinking: text, signature }
        }
        Part::Reasoning { .. } => return None,
    })
}

/// A result's content: its text, or its text and its pictures.
pub(crate) fn result_content<'m>(text: &'m str, media: &'m [Media]) -> Content<'m> {
    let pictures: Vec<ResultBlock> =
        media.iter().filter_map(source).map(|source| ResultBlock::Image { source }).collect();
    if pictures.is_empty() {
        return Content::Text(text);
    }
    let said = (!text.is_empty()).then_some(ResultBlock::Text { text });
    Content::Blocks(said.into_iter().chain(pictures).collect())
}

/// Where a picture is; None where it is no picture.
fn source(media: &Media) -> Option<Source<'_>> {
    if !media.media_type.starts_with("image/") {
        return None;
    }
    Some(match of_data_uri(&media.uri) {
        Some((media_type, data)) => Source::Base64 { media_type, data },
        None => Source::Url { url: &media.uri },
    })
}
