//! Messages of pi as the model gets them: what pi's own `convertToLlm` makes of each kind.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};

use super::{
    BRANCH, COMPACTED, LABEL,
    fields::{BLOCKS, BlockFields},
};
use crate::{
    Fate,
    blocks::data_uri,
    fit,
    json::{self, Bad, Fields, Notes, named},
};

/// Fields of entries that are not kept as labels, because the message or the tree says them.
const ENTRY: [&str; 10] =
    ["type", "parentId", "message", "content", "summary", "display", "anneal", "customType", "id", "timestamp"];
/// The same of messages.
const MESSAGE: [&str; 9] =
    ["role", "content", "toolCallId", "tool_call_id", "isError", "timestamp", "command", "output", "summary"];
/// The label of a message's own time, which is not its entry's.
pub(super) const SAID_AT: &str = "messageTimestamp";
/// Labels that matter most, for they are few that fit.
const FIRST: [&str; 7] = ["provider", "model", "api", "stopReason", "usage", "errorMessage", "toolName"];

/// The message of an entry; None where it says nothing to a model.
pub(super) fn message(entry: &Fields, notes: &mut Notes) -> Result<Option<Message>, Bad> {
    let mut labels = Labels::default();
    labels.take(entry, "id", notes)?;
    labels.take(entry, "timestamp", notes)?;
    let (role, parts) = match entry.must("type")?.as_str() {
        "message" => {
            let said = Fields::parse(entry.raw("message").ok_or_else(|| Bad::new("it needs a message"))?)?;
            let role = said.must("role")?;
            let mut blocks = BlockFields::default();
            let Some(parts) = spoken(&role, &said, &mut blocks, notes)? else { return Ok(None) };
            if !matches!(role.as_str(), "user" | "assistant" | "toolResult") {
                labels.put("role", role, notes);
            }
            labels.fields(&said, &MESSAGE, notes)?;
            if let Some(time) = said.label("timestamp")? {
                labels.put(SAID_AT, time, notes);
            }
            labels.blocks(&blocks, notes);
            parts
        }
        "custom_message" => {
            labels.put("type", "custom_message".into(), notes);
            labels.take(entry, "customType", notes)?;
            let mut blocks = BlockFields::default();
            let parts = content(entry, &Speaker::default(), &mut blocks, notes)?;
            labels.blocks(&blocks, notes);
            (Role::User, parts)
        }
        "branch_summary" => {
            let Some(summary) = entry.text("summary")?.filter(|summary| !summary.is_empty()) else { return Ok(None) };
            labels.put("type", "branch_summary".into(), notes);
            (Role::User, vec![Part::Text { text: format!("{}{summary}{}", BRANCH[0], BRANCH[1]) }])
        }
        _ => return Ok(None),
    };
    labels.fields(entry, &ENTRY, notes)?;
    Ok(Some(Message { role, parts, metadata: labels.0 }))
}

/// A message's role and parts.
fn spoken(
    role: &str,
    said: &Fields,
    blocks: &mut BlockFields,
    notes: &mut Notes,
) -> Result<Option<(Role, Vec<Part>)>, Bad> {
    let around = |[before, after]: [&str; 2], text: String| vec![Part::Text { text: format!("{before}{text}{after}") }];
    Ok(Some(match role {
        "user" | "custom" | "hookMessage" => (Role::User, content(said, &Speaker::default(), blocks, notes)?),
        "assistant" => (Role::Assistant, content(said, &Speaker::of(said)?, blocks, notes)?),
        "system" => (Role::System, content(said, &Speaker::default(), blocks, notes)?),
        "toolResult" | "tool" => (Role::Tool, vec![result(said, notes)?]),
        "bashExecution" if said.is("excludeFromContext") => return Ok(None),
        "bashExecution" => (Role::User, vec![Part::Text { text: ran(said)? }]),
        "branchSummary" => (Role::User, around(BRANCH, said.must("summary")?)),
        "compactionSummary" => (Role::User, around(COMPACTED, said.must("summary")?)),
        other => return Err(Bad(format!("unknown role {}", named(other)))),
    }))
}

/// A command that the user ran, as pi tells the model.
fn ran(said: &Fields) -> Result<String, Bad> {
    let output = said.text("output")?.unwrap_or_default();
    let output = if output.is_empty() { "(no output)".to_owned() } else { format!("```\n{output}\n```") };
    let end = match said.raw("exitCode") {
        _ if said.is("cancelled") => "\n\n(command cancelled)".to_owned(),
        Some(code) if code != "0" => format!("\n\nCommand exited with code {code}"),
        _ => String::new(),
    };
    let path = said.text("fullOutputPath")?.filter(|path| said.is("truncated") && !path.is_empty());
    let path = path.map(|path| format!("\n\n[Output truncated. Full output: {path}]")).unwrap_or_default();
    Ok(format!("Ran `{}`\n{output}{end}{path}", said.must("command")?))
}

fn result(said: &Fields, notes: &mut Notes) -> Result<Part, Bad> {
    let id = said.text("toolCallId")?.map_or_else(|| said.must("tool_call_id"), Ok)?;
    let mut texts = Vec::new();
    let mut media = Vec::new();
    let mut blocks = BlockFields::default();
    let said_parts = content(said, &Speaker::default(), &mut blocks, notes)?;
    // its texts become one: none of them has a place of its own any more
    blocks.unread(notes, "blocks of a tool result");
    for part in said_parts {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {
                notes.push((Fate::SetAside, "a block within a tool result that is neither text nor image".into()));
            }
        }
    }
    Ok(Part::ToolResult { id, text: texts.join("\n"), is_error: said.is("isError"), media })
}

/// Who signs the thoughts of an answer.
#[derive(Default)]
struct Speaker(String);

impl Speaker {
    fn of(said: &Fields) -> Result<Self, Bad> {
        let api = said.text("api")?.unwrap_or_default();
        let provider = said.text("provider")?.unwrap_or_default();
        let known = [("anthropic", "anthropic"), ("bedrock", "anthropic"), ("google", "gemini"), ("openai", "openai")];
        // completions have no signatures; pi keeps a field's name in their place
        let named = if api.is_empty() { &provider } else { &api };
        let signer = known.iter().find(|(prefix, _)| named.starts_with(prefix) && named != "openai-completions");
        Ok(Self(signer.map(|(_, signer)| (*signer).to_owned()).unwrap_or_default()))
    }
}

fn content(said: &Fields, speaker: &Speaker, blocks: &mut BlockFields, notes: &mut Notes) -> Result<Vec<Part>, Bad> {
    match said.raw("content") {
        None => Ok(Vec::new()),
        Some(raw) if json::is_text(raw) => Ok(vec![Part::Text { text: json::text(raw)? }]),
        Some(raw) if raw.starts_with('[') => {
            let mut parts = Vec::new();
            for raw in json::list(raw)? {
                let said = Fields::parse(raw)?;
                if let Some((part, read)) = block(&said, speaker, notes)? {
                    blocks.take(parts.len(), &said, read);
                    parts.push(part);
                }
            }
            Ok(parts)
        }
        Some(_) => Err(Bad::new("content is neither a text nor a list of blocks")),
    }
}

/// A block's part, and the fields that it says; None when the block is set aside.
fn block(block: &Fields, speaker: &Speaker, notes: &mut Notes) -> Result<Option<(Part, &'static [&'static str])>, Bad> {
    let kind = block.must("type")?;
    Ok(Some(match kind.as_str() {
        "text" => (Part::Text { text: block.must("text")? }, &["type", "text"]),
        "thinking" => {
            let part = Part::Reasoning {
                text: block.text("thinking")?.unwrap_or_default(),
                signature: block.text("thinkingSignature")?.unwrap_or_default(),
                provider: speaker.0.clone(),
                redacted: block.is("redacted"),
            };
            (part, &["type", "thinking", "thinkingSignature", "redacted"])
        }
        "toolCall" | "tool_use" => {
            let input = if kind == "toolCall" { "arguments" } else { "input" };
            let (id, name) = (block.must("id")?, block.must("name")?);
            let part = Part::ToolUse { id, name, input: block.raw(input).unwrap_or("{}").to_owned() };
            (
                part,
                if kind == "toolCall" {
                    &["type", "id", "name", "arguments"]
                } else {
                    &["type", "id", "name", "input"]
                },
            )
        }
        "image" if block.has("data") => {
            let media_type = block.text("mimeType")?.unwrap_or_else(|| "image/*".into());
            let uri = data_uri(&media_type, &block.must("data")?);
            (Part::Media(Media { uri, media_type, bytes: 0, tokens: 0 }), &["type", "data", "mimeType"])
        }
        other => {
            notes.push((Fate::SetAside, format!("a block of type {}", named(other))));
            return Ok(None);
        }
    }))
}

/// The labels of a message: those that fit.
#[derive(Default)]
struct Labels(BTreeMap<String, String>);

impl Labels {
    fn put(&mut self, name: &str, value: String, notes: &mut Notes) {
        let key = format!("{LABEL}{name}");
        if fit::has_room(&self.0, &key, &value) {
            self.0.insert(key, value);
        } else {
            notes.push((Fate::SetAside, format!("{} does not fit into the metadata", named(name))));
        }
    }

    /// What blocks have that parts do not say; counted where it does not fit.
    fn blocks(&mut self, blocks: &BlockFields, notes: &mut Notes) {
        let Some(label) = blocks.label() else { return };
        if fit::has_room(&self.0, &format!("{LABEL}{BLOCKS}"), &label) {
            self.0.insert(format!("{LABEL}{BLOCKS}"), label);
        } else {
            blocks.unread(notes, "blocks, too large for the metadata");
        }
    }

    fn take(&mut self, fields: &Fields, name: &str, notes: &mut Notes) -> Result<(), Bad> {
        if let Some(value) = fields.label(name)? {
            self.put(name, value, notes);
        }
        Ok(())
    }

    /// All fields but those of `others`, the most telling first.
    fn fields(&mut self, fields: &Fields, others: &[&str], notes: &mut Notes) -> Result<(), Bad> {
        for name in FIRST {
            self.take(fields, name, notes)?;
        }
        for name in fields.names().filter(|name| !others.contains(name) && !FIRST.contains(name)) {
            self.take(fields, name, notes)?;
        }
        Ok(())
    }
}
