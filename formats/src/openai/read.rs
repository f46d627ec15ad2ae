//! A message as OpenAI writes it.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};

use crate::{
    Fate,
    blocks::media_type,
    json::{self, Bad, Fields, Notes, named},
};

/// What is read of a call's function.
const FUNCTION: [&str; 2] = ["name", "arguments"];

/// The message of a record.
pub(super) fn message(record: &Fields, notes: &mut Notes) -> Result<Message, Bad> {
    let role = match record.must("role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        "system" | "developer" => Role::System,
        other => return Err(Bad(format!("unknown role {}", named(other)))),
    };
    let said = content(record, notes)?;
    let name = record.text("name")?;
    let parts = if role == Role::Tool {
        let id = result_id(record)?.or_else(|| name.clone()).ok_or_else(|| Bad::new("it needs a tool_call_id"))?;
        vec![result(id, said)]
    } else {
        let mut parts = Vec::new();
        parts.extend(record.text("reasoning_content")?.map(thought));
        parts.extend(said);
        parts.extend(record.text("refusal")?.map(|text| Part::Text { text }));
        for call in record.list("tool_calls")? {
            parts.push(tool_call(call, notes)?);
        }
        if let Some(call) = record.raw("function_call") {
            let function = Fields::parse(call)?;
            notes.unread(&function, &FUNCTION, "function calls");
            let name = function.must("name")?;
            parts.push(Part::ToolUse { id: name.clone(), name, input: arguments(&function)? });
        }
        parts
    };
    let metadata: BTreeMap<_, _> = name.map(|name| ("name".to_owned(), name)).into_iter().collect();
    Ok(Message { role, parts, metadata })
}

/// Which call a tool's message answers. SWE-agent has a list of one.
fn result_id(record: &Fields) -> Result<Option<String>, Bad> {
    let ids = record.list("tool_call_ids")?;
    let first = ids.first().filter(|raw| json::is_text(raw)).map(|raw| json::text(raw));
    Ok(record.text("tool_call_id")?.or(first.transpose()?))
}

fn thought(text: String) -> Part {
    Part::Reasoning { text, signature: String::new(), provider: String::new(), redacted: false }
}

fn tool_call(call: &str, notes: &mut Notes) -> Result<Part, Bad> {
    let call = Fields::parse(call)?;
    let function = Fields::parse(call.raw("function").ok_or_else(|| Bad::new("a tool call needs a function"))?)?;
    notes.unread(&call, &["id", "type", "function"], "tool calls");
    notes.unread(&function, &FUNCTION, "function calls");
    let name = function.must("name")?;
    let id = call.text("id")?.unwrap_or_else(|| name.clone());
    Ok(Part::ToolUse { id, name, input: arguments(&function)? })
}

/// The arguments: a text, or as they stand.
fn arguments(function: &Fields) -> Result<String, Bad> {
    Ok(function.label("arguments")?.unwrap_or_default())
}

/// A tool's answer: its texts as one, its pictures beside them.
fn result(id: String, said: Vec<Part>) -> Part {
    let mut texts = Vec::new();
    let mut media = Vec::new();
    for part in said {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {}
        }
    }
    Part::ToolResult { id, text: texts.join("\n"), is_error: false, media }
}

/// `content`: null, a text, or a list of parts.
fn content(record: &Fields, notes: &mut Notes) -> Result<Vec<Part>, Bad> {
    match record.raw("content") {
        None => Ok(Vec::new()),
        Some(raw) if json::is_text(raw) => Ok(vec![Part::Text { text: json::text(raw)? }]),
        Some(raw) if raw.starts_with('[') => {
            let parts = json::list(raw)?.into_iter().map(|item| content_part(item, notes));
            Ok(parts.collect::<Result<Vec<_>, Bad>>()?.into_iter().flatten().collect())
        }
        Some(_) => Err(Bad::new("content is neither null nor a text nor a list")),
    }
}

/// One part of a content; None when it is set aside.
fn content_part(item: &str, notes: &mut Notes) -> Result<Option<Part>, Bad> {
    if json::is_text(item) {
        return Ok(Some(Part::Text { text: json::text(item)? }));
    }
    let item = Fields::parse(item)?;
    let kind = item.text("type")?.unwrap_or_else(|| "text".into());
    Ok(match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            notes.unread(&item, &["type", "text"], "texts");
            Some(Part::Text { text: item.must("text")? })
        }
        "refusal" => {
            notes.unread(&item, &["type", "refusal"], "refusals");
            Some(Part::Text { text: item.must("refusal")? })
        }
        "image_url" | "input_image" => {
            notes.unread(&item, &["type", "image_url"], "pictures");
            let uri = match item.raw("image_url") {
                Some(raw) if json::is_text(raw) => json::text(raw)?,
                Some(raw) => {
                    let address = Fields::parse(raw)?;
                    notes.unread(&address, &["url"], "pictures");
                    address.must("url")?
                }
                None => return Err(Bad::new("a picture needs an image_url")),
            };
            Some(Part::Media(Media { media_type: media_type(&uri), uri, bytes: 0, tokens: 0 }))
        }
        other => {
            notes.push((Fate::SetAside, format!("a part of type {}", named(other))));
            None
        }
    })
}
