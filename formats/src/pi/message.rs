//! Converts pi's messages to anneal's, as pi's `convertToLlm` converts them for the model.

use std::collections::BTreeMap;

use anneal_core::message::{Media, Message, Part, Role};

use super::{
    BRANCH_SUMMARY, COMPACTION_SUMMARY, LABEL,
    block_fields::{BLOCKS, BlockFields},
    command,
};
use crate::{
    ImportOutcome,
    blocks::data_uri,
    json::{self, Fields, Notes, Unreadable, short_name},
    storage_limits,
};

/// Fields of entries that do not become labels with the others: the message or the tree holds them,
/// they are read on their own (`id`, `timestamp`, and `anneal`, which `entry.rs` reads), or they
/// concern only pi's screen (`display`).
const UNLABELED_ENTRY_FIELDS: [&str; 10] = [
    "type",
    "parentId",
    "message",
    "content",
    "summary",
    "display",
    "anneal",
    "customType",
    "id",
    "timestamp",
];
/// Fields of messages that do not become labels with the others, because the parts, the role or
/// labels of their own hold them.
const UNLABELED_MESSAGE_FIELDS: [&str; 9] = [
    "role",
    "content",
    "toolCallId",
    "tool_call_id",
    "isError",
    "timestamp",
    "command",
    "output",
    "summary",
];
/// The label (without `pi.`) of the message's own time, which may differ from its entry's.
pub(super) const MESSAGE_TIMESTAMP: &str = "messageTimestamp";
/// Fields that become labels first, because only a few labels fit.
const PRIORITY_FIELDS: [&str; 7] = [
    "provider",
    "model",
    "api",
    "stopReason",
    "usage",
    "errorMessage",
    "toolName",
];

/// The message of an entry. None if the entry is not sent to the model.
pub(super) fn parse_message(
    entry: &Fields,
    notes: &mut Notes,
) -> Result<Option<Message>, Unreadable> {
    let mut labels = Labels::default();
    labels.insert_field(entry, "id", notes)?;
    labels.insert_field(entry, "timestamp", notes)?;
    let (role, parts) = match entry.required_text("type")?.as_str() {
        "message" => {
            let fields = Fields::parse(
                entry
                    .raw("message")
                    .ok_or_else(|| Unreadable::new("it needs a field `message`"))?,
            )?;
            let role = fields.required_text("role")?;
            let mut blocks = BlockFields::default();
            let Some(parts) = role_and_parts(&role, &fields, &mut blocks, notes)? else {
                return Ok(None);
            };
            if role == command::ROLE {
                labels.insert_form(&fields, notes)?;
            }
            if !matches!(role.as_str(), "user" | "assistant" | "toolResult") {
                labels.insert("role", role, notes);
            }
            labels.insert_fields(&fields, &UNLABELED_MESSAGE_FIELDS, notes)?;
            if let Some(time) = fields.text_or_raw("timestamp")? {
                labels.insert(MESSAGE_TIMESTAMP, time, notes);
            }
            labels.insert_block_fields(&blocks, notes);
            parts
        }
        "custom_message" => {
            labels.insert("type", "custom_message".into(), notes);
            labels.insert_field(entry, "customType", notes)?;
            let mut blocks = BlockFields::default();
            let parts = parse_content(entry, &ReasoningProvider::default(), &mut blocks, notes)?;
            labels.insert_block_fields(&blocks, notes);
            (Role::User, parts)
        }
        "branch_summary" => {
            let Some(summary) = entry.text("summary")?.filter(|summary| !summary.is_empty()) else {
                return Ok(None);
            };
            labels.insert("type", "branch_summary".into(), notes);
            (
                Role::User,
                vec![Part::Text {
                    text: format!("{}{summary}{}", BRANCH_SUMMARY[0], BRANCH_SUMMARY[1]),
                }],
            )
        }
        _ => return Ok(None),
    };
    labels.insert_fields(entry, &UNLABELED_ENTRY_FIELDS, notes)?;
    Ok(Some(Message {
        role,
        parts,
        metadata: labels.0,
    }))
}

fn role_and_parts(
    role: &str,
    fields: &Fields,
    blocks: &mut BlockFields,
    notes: &mut Notes,
) -> Result<Option<(Role, Vec<Part>)>, Unreadable> {
    let around = |[before, after]: [&str; 2], text: String| {
        vec![Part::Text {
            text: format!("{before}{text}{after}"),
        }]
    };
    Ok(Some(match role {
        "user" | "custom" | "hookMessage" => (
            Role::User,
            parse_content(fields, &ReasoningProvider::default(), blocks, notes)?,
        ),
        "assistant" => (
            Role::Assistant,
            parse_content(fields, &ReasoningProvider::of(fields)?, blocks, notes)?,
        ),
        "system" => (
            Role::System,
            parse_content(fields, &ReasoningProvider::default(), blocks, notes)?,
        ),
        "toolResult" | "tool" => (Role::Tool, vec![tool_result(fields, notes)?]),
        command::ROLE if fields.is_true("excludeFromContext") => return Ok(None),
        command::ROLE => (
            Role::User,
            vec![Part::Text {
                text: command::words(fields)?,
            }],
        ),
        "branchSummary" => (
            Role::User,
            around(BRANCH_SUMMARY, fields.required_text("summary")?),
        ),
        "compactionSummary" => (
            Role::User,
            around(COMPACTION_SUMMARY, fields.required_text("summary")?),
        ),
        other => return Err(Unreadable(format!("unknown role {}", short_name(other)))),
    }))
}

fn tool_result(fields: &Fields, notes: &mut Notes) -> Result<Part, Unreadable> {
    let id = fields
        .text("toolCallId")?
        .map_or_else(|| fields.required_text("tool_call_id"), Ok)?;
    let mut texts = Vec::new();
    let mut media = Vec::new();
    let mut blocks = BlockFields::default();
    let content_parts = parse_content(fields, &ReasoningProvider::default(), &mut blocks, notes)?;
    // The texts are joined into one, so there is no block into which extra fields could be written
    // back.
    blocks.note_unread(notes, "blocks of a tool result");
    for part in content_parts {
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
        is_error: fields.is_true("isError"),
        media,
    })
}

/// The provider that signed the reasoning of an answer; empty: unknown.
#[derive(Default)]
struct ReasoningProvider(String);

impl ReasoningProvider {
    fn of(fields: &Fields) -> Result<Self, Unreadable> {
        let api = fields.text("api")?.unwrap_or_default();
        let provider = fields.text("provider")?.unwrap_or_default();
        let known = [
            ("anthropic", "anthropic"),
            ("bedrock", "anthropic"),
            ("google", "gemini"),
            ("openai", "openai"),
        ];
        // OpenAI completions have no signatures; pi stores a field name in their place.
        let named = if api.is_empty() { &provider } else { &api };
        let signer = known
            .iter()
            .find(|(prefix, _)| named.starts_with(prefix) && named != "openai-completions");
        Ok(Self(
            signer
                .map(|(_, signer)| (*signer).to_owned())
                .unwrap_or_default(),
        ))
    }
}

fn parse_content(
    fields: &Fields,
    provider: &ReasoningProvider,
    blocks: &mut BlockFields,
    notes: &mut Notes,
) -> Result<Vec<Part>, Unreadable> {
    match fields.raw("content") {
        None => Ok(Vec::new()),
        Some(raw) if json::is_text(raw) => Ok(vec![Part::Text {
            text: json::text(raw)?,
        }]),
        Some(raw) if raw.starts_with('[') => {
            let mut parts = Vec::new();
            for raw in json::list(raw)? {
                let fields = Fields::parse(raw)?;
                if let Some((part, read)) = parse_block(&fields, provider, notes)? {
                    blocks.record(parts.len(), &fields, read);
                    parts.push(part);
                }
            }
            Ok(parts)
        }
        Some(_) => Err(Unreadable::new(
            "content is neither a text nor a list of blocks",
        )),
    }
}

/// The part of a block, and the names of the fields that the part holds. None if the block was set
/// aside, with a note.
fn parse_block(
    block: &Fields,
    provider: &ReasoningProvider,
    notes: &mut Notes,
) -> Result<Option<(Part, &'static [&'static str])>, Unreadable> {
    let kind = block.required_text("type")?;
    Ok(Some(match kind.as_str() {
        "text" => (
            Part::Text {
                text: block.required_text("text")?,
            },
            &["type", "text"],
        ),
        "thinking" => {
            let part = Part::Reasoning {
                text: block.text("thinking")?.unwrap_or_default(),
                signature: block.text("thinkingSignature")?.unwrap_or_default(),
                provider: provider.0.clone(),
                redacted: block.is_true("redacted"),
            };
            (part, &["type", "thinking", "thinkingSignature", "redacted"])
        }
        "toolCall" | "tool_use" => {
            let input_field = if kind == "toolCall" {
                "arguments"
            } else {
                "input"
            };
            let (id, name) = (block.required_text("id")?, block.required_text("name")?);
            let part = Part::ToolUse {
                id,
                name,
                input: block.raw(input_field).unwrap_or("{}").to_owned(),
            };
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
            let uri = data_uri(&media_type, &block.required_text("data")?);
            (
                Part::Media(Media {
                    uri,
                    media_type,
                    bytes: 0,
                    tokens: 0,
                }),
                &["type", "data", "mimeType"],
            )
        }
        other => {
            notes.push((
                ImportOutcome::SetAside,
                format!("a block of type {}", short_name(other)),
            ));
            return Ok(None);
        }
    }))
}

/// The labels of a message that fit into its metadata.
#[derive(Default)]
struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Inserts a label; notes it as set aside if it does not fit.
    fn insert(&mut self, name: &str, value: String, notes: &mut Notes) {
        let key = format!("{LABEL}{name}");
        if storage_limits::label_fits(&self.0, &key, &value) {
            self.0.insert(key, value);
        } else {
            notes.push((
                ImportOutcome::SetAside,
                format!("{} does not fit into the metadata", short_name(name)),
            ));
        }
    }

    /// Inserts the form of a command, so that it can be written as pi wrote it.
    fn insert_form(&mut self, message: &Fields, notes: &mut Notes) -> Result<(), Unreadable> {
        match command::form(message)? {
            Some(form) => self.insert(command::FORM, form, notes),
            None => notes.push((
                ImportOutcome::SetAside,
                "the form of a command whose end its words do not show".into(),
            )),
        }
        Ok(())
    }

    /// Inserts the block fields as a label; notes them as unread if they do not fit.
    fn insert_block_fields(&mut self, blocks: &BlockFields, notes: &mut Notes) {
        let Some(label) = blocks.label() else { return };
        if storage_limits::label_fits(&self.0, &format!("{LABEL}{BLOCKS}"), &label) {
            self.0.insert(format!("{LABEL}{BLOCKS}"), label);
        } else {
            blocks.note_unread(notes, "blocks, too large for the metadata");
        }
    }

    fn insert_field(
        &mut self,
        fields: &Fields,
        name: &str,
        notes: &mut Notes,
    ) -> Result<(), Unreadable> {
        if let Some(value) = fields.text_or_raw(name)? {
            self.insert(name, value, notes);
        }
        Ok(())
    }

    /// Inserts [`PRIORITY_FIELDS`], then all other fields except those in `excluded`.
    fn insert_fields(
        &mut self,
        fields: &Fields,
        excluded: &[&str],
        notes: &mut Notes,
    ) -> Result<(), Unreadable> {
        for name in PRIORITY_FIELDS {
            self.insert_field(fields, name, notes)?;
        }
        for name in fields
            .names()
            .filter(|name| !excluded.contains(name) && !PRIORITY_FIELDS.contains(name))
        {
            self.insert_field(fields, name, notes)?;
        }
        Ok(())
    }
}
