//! Reads OpenAI chat messages.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};

use crate::{
    ImportOutcome,
    blocks::media_type,
    json::{self, Fields, Notes, Unreadable, short_name},
};

/// The fields of a function call that are read.
const FUNCTION_FIELDS: [&str; 2] = ["name", "arguments"];

/// The message of a record.
pub(super) fn message(record: &Fields, notes: &mut Notes) -> Result<Message, Unreadable> {
    let role = match record.required_text("role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        "system" | "developer" => Role::System,
        other => return Err(Unreadable(format!("unknown role {}", short_name(other)))),
    };
    let content_parts = content(record, notes)?;
    let name = record.text("name")?;
    let parts = if role == Role::Tool {
        let id = result_id(record)?
            .or_else(|| name.clone())
            .ok_or_else(|| Unreadable::new("it needs a tool_call_id"))?;
        vec![result(id, content_parts)]
    } else {
        let mut parts = Vec::new();
        parts.extend(record.text("reasoning_content")?.map(reasoning));
        parts.extend(content_parts);
        parts.extend(record.text("refusal")?.map(|text| Part::Text { text }));
        for call in record.list("tool_calls")? {
            parts.push(tool_call(call, notes)?);
        }
        if let Some(call) = record.raw("function_call") {
            let function = Fields::parse(call)?;
            notes.note_unread_fields(&function, &FUNCTION_FIELDS, "function calls");
            let name = function.required_text("name")?;
            parts.push(Part::ToolUse {
                id: name.clone(),
                name,
                input: arguments(&function)?,
            });
        }
        parts
    };
    let metadata: BTreeMap<_, _> = name
        .map(|name| ("name".to_owned(), name))
        .into_iter()
        .collect();
    Ok(Message {
        role,
        parts,
        metadata,
    })
}

/// The id of the call that a tool message answers. SWE-agent writes a list with one id.
fn result_id(record: &Fields) -> Result<Option<String>, Unreadable> {
    let ids = record.list("tool_call_ids")?;
    let first = ids
        .first()
        .filter(|raw| json::is_text(raw))
        .map(|raw| json::text(raw));
    Ok(record.text("tool_call_id")?.or(first.transpose()?))
}

fn reasoning(text: String) -> Part {
    Part::Reasoning {
        text,
        signature: String::new(),
        provider: String::new(),
        redacted: false,
    }
}

fn tool_call(call: &str, notes: &mut Notes) -> Result<Part, Unreadable> {
    let call = Fields::parse(call)?;
    let function = Fields::parse(
        call.raw("function")
            .ok_or_else(|| Unreadable::new("a tool call needs a function"))?,
    )?;
    notes.note_unread_fields(&call, &["id", "type", "function"], "tool calls");
    notes.note_unread_fields(&function, &FUNCTION_FIELDS, "function calls");
    let name = function.required_text("name")?;
    let id = call.text("id")?.unwrap_or_else(|| name.clone());
    Ok(Part::ToolUse {
        id,
        name,
        input: arguments(&function)?,
    })
}

/// The arguments: a string, or raw JSON.
fn arguments(function: &Fields) -> Result<String, Unreadable> {
    Ok(function.text_or_raw("arguments")?.unwrap_or_default())
}

/// A tool result: its texts joined with line ends, its images as media.
fn result(id: String, content_parts: Vec<Part>) -> Part {
    let mut texts = Vec::new();
    let mut media = Vec::new();
    for part in content_parts {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {}
        }
    }
    Part::ToolResult {
        id,
        text: texts.join("\n"),
        is_error: false,
        media,
    }
}

/// The parts of the field `content`, which is null, a string, or a list.
fn content(record: &Fields, notes: &mut Notes) -> Result<Vec<Part>, Unreadable> {
    match record.raw("content") {
        None => Ok(Vec::new()),
        Some(raw) if json::is_text(raw) => Ok(vec![Part::Text {
            text: json::text(raw)?,
        }]),
        Some(raw) if raw.starts_with('[') => {
            let parts = json::list(raw)?
                .into_iter()
                .map(|item| content_part(item, notes));
            Ok(parts
                .collect::<Result<Vec<_>, Unreadable>>()?
                .into_iter()
                .flatten()
                .collect())
        }
        Some(_) => Err(Unreadable::new(
            "content is neither null nor a text nor a list",
        )),
    }
}

/// A part of `content`. None if it was set aside, with a note.
fn content_part(item: &str, notes: &mut Notes) -> Result<Option<Part>, Unreadable> {
    if json::is_text(item) {
        return Ok(Some(Part::Text {
            text: json::text(item)?,
        }));
    }
    let item = Fields::parse(item)?;
    let kind = item.text("type")?.unwrap_or_else(|| "text".into());
    Ok(match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            notes.note_unread_fields(&item, &["type", "text"], "texts");
            Some(Part::Text {
                text: item.required_text("text")?,
            })
        }
        "refusal" => {
            notes.note_unread_fields(&item, &["type", "refusal"], "refusals");
            Some(Part::Text {
                text: item.required_text("refusal")?,
            })
        }
        "image_url" | "input_image" => {
            notes.note_unread_fields(&item, &["type", "image_url"], "images");
            let uri = match item.raw("image_url") {
                Some(raw) if json::is_text(raw) => json::text(raw)?,
                Some(raw) => {
                    let address = Fields::parse(raw)?;
                    notes.note_unread_fields(&address, &["url"], "images");
                    address.required_text("url")?
                }
                None => return Err(Unreadable::new("an image needs an image_url")),
            };
            Some(Part::Media(Media {
                media_type: media_type(&uri),
                uri,
                bytes: 0,
                tokens: 0,
            }))
        }
        other => {
            notes.push((
                ImportOutcome::SetAside,
                format!("a part of type {}", short_name(other)),
            ));
            None
        }
    })
}
