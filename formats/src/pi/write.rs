//! Writes sessions of version 3, which pi can load.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io::Write,
};

use anneal_core::{
    digest,
    message::{Media, Message, Part, Role},
};

use super::{
    ENTRIES, LABEL, SEPARATOR, SYSTEM,
    block_fields::BlockFields,
    command,
    entry::{Entry, KeptCompaction, is_whole_entry, parse_entry},
    message::MESSAGE_TIMESTAMP,
};
use crate::{
    Format, Head, StoredMessage, Summary, WriteError,
    blocks::parse_data_uri,
    conversation_extra::ConversationExtra,
    format_writer::FormatWriter,
    json::{Fields, Notes, object, quoted},
    message_extra::{ANNEAL_KEY, ExtraObject, merge_messages, with_extra},
    storage_limits::half_hex,
    time::{in_pi_format, iso},
};

/// Labels that are not written as fields of their own: other code writes them, or the message
/// itself has what they say.
const LABELS_WITHOUT_FIELD: [&str; 11] = [
    "pi.id",
    "pi.timestamp",
    "pi.messageTimestamp",
    "pi.entries",
    "pi.message",
    "pi.type",
    "pi.role",
    "pi.customType",
    "pi.usage",
    "pi.stopReason",
    "pi.blocks",
];
/// The `usage` of an answer whose usage is unknown. pi expects the field in every answer.
const NO_USAGE: &str = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#;

/// Writes a session file, which holds one conversation.
pub(crate) struct PiWriter {
    out: Box<dyn Write + Send>,
    /// Whether a conversation was begun. A file holds only one.
    has_conversation: bool,
    ids: Ids,
    /// The id of the entry written last.
    parent: Option<u32>,
    /// The id of each message's first entry.
    first_entries: Vec<u32>,
    /// The names of the tools that the last answer called, by call id.
    called_tools: HashMap<String, String>,
    /// When the last written message was stored; before the first one, when the conversation was
    /// created.
    created_us: i64,
    /// The summaries and separators that are not written yet: the next message says which entries
    /// stand between them.
    waiting: VecDeque<Mark>,
    /// The entries after the last message, as the label [`ENTRIES`] has them.
    trailing_entries: String,
}

/// A summary or a separator.
enum Mark {
    Summary(Summary),
    Separator,
}

impl PiWriter {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            has_conversation: false,
            ids: Ids::default(),
            parent: None,
            first_entries: Vec::new(),
            called_tools: HashMap::new(),
            created_us: 0,
            waiting: VecDeque::new(),
            trailing_entries: String::new(),
        }
    }

    /// Writes the summaries and separators that wait, and the entries of a label in their places
    /// between them. Returns the label that a reader makes of these lines; empty: none.
    fn write_waiting(&mut self, label: &str) -> Result<String, WriteError> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut lines = Vec::new();
        for text in label.lines() {
            if let Some(kept) = KeptCompaction::parse(text) {
                let is_kept = |mark: &Mark| matches!(mark, Mark::Summary(summary) if kept.has_summary(&summary.text));
                let Some(place) = waiting.iter().position(is_kept) else {
                    continue;
                };
                let before: Vec<Mark> = waiting.drain(..place).collect();
                lines.extend(before.iter().map(|mark| self.next_mark(mark, None)));
                let made_of_kept = waiting.pop_front();
                lines.extend(made_of_kept.map(|mark| self.next_mark(&mark, Some(&kept))));
            } else if is_whole_entry(text) {
                lines.extend(self.next_kept_entry(text));
            }
        }
        lines.extend(waiting.iter().map(|mark| self.next_mark(mark, None)));
        let mut read_back = Vec::new();
        for line in lines {
            writeln!(self.out, "{line}")?;
            match parse_entry(&line, &mut Notes::new()) {
                Ok(Entry::Other(entry) | Entry::Model(_, entry)) => read_back.push(entry.text),
                Ok(Entry::Compaction(compaction)) => {
                    read_back.extend(compaction.kept.map(|kept| kept.text));
                }
                Ok(Entry::Message(..) | Entry::Separator | Entry::SessionName) | Err(_) => {}
            }
        }
        Ok(read_back.join("\n"))
    }

    /// Makes the entry of a summary or a separator. `kept`: what is known of the entry from which
    /// the summary was imported.
    fn next_mark(&mut self, mark: &Mark, kept: Option<&KeptCompaction>) -> String {
        let id = self.ids.next(kept.and_then(|kept| kept.id.as_ref()));
        let Mark::Summary(summary) = mark else {
            let fields = format!("\"customType\":\"{SEPARATOR}\"");
            return self.next_entry(id, "custom", &iso(self.created_us), &fields);
        };
        let covers = usize::try_from(summary.covers).unwrap_or(usize::MAX);
        // If the summary covers all messages, the compaction itself is the first kept entry.
        let first_kept = self.first_entries.get(covers).copied().unwrap_or(id);
        let after = summary
            .tokens_after
            .map(|after| format!(",\"tokensAfter\":{after}"))
            .unwrap_or_default();
        let original = kept
            .and_then(|kept| kept.timestamp.as_deref())
            .map(in_pi_format);
        let timestamp =
            original.unwrap_or_else(|| iso(summary.created_us.unwrap_or(self.created_us)));
        // Tells readers that nothing of an entry needs to be kept.
        let by_anneal = if kept.is_none() {
            format!(",\"{ANNEAL_KEY}\":{{}}")
        } else {
            String::new()
        };
        let fields = format!(
            "\"summary\":{},\"firstKeptEntryId\":\"{first_kept:08x}\",\"tokensBefore\":{}{after}{by_anneal}",
            quoted(&summary.text),
            summary.tokens_before.unwrap_or(0)
        );
        self.next_entry(id, "compaction", &timestamp, &fields)
    }

    /// Makes an entry of the label [`ENTRIES`] again, with its place in the session. It stays as it
    /// is if it had this place. None: it is no JSON object, or its type needs escapes.
    fn next_kept_entry(&mut self, text: &str) -> Option<String> {
        let fields = Fields::parse(text).ok()?;
        let kind = fields.text("type").ok()??;
        if quoted(&kind) != format!("\"{kind}\"") {
            return None;
        }
        let wanted = fields.text("id").ok()?;
        let id = self.ids.next(wanted.as_ref());
        let parent = self.parent.map(|parent| format!("{parent:08x}"));
        let is_in_place = wanted == Some(format!("{id:08x}"))
            && fields.text("parentId").ok()? == parent
            && fields.has("timestamp");
        if is_in_place {
            self.parent = Some(id);
            return Some(text.to_owned());
        }
        let time = fields.text_or_raw("timestamp").ok()?;
        let timestamp = time.map_or_else(|| iso(self.created_us), |time| in_pi_format(&time));
        let others: Vec<String> = fields
            .0
            .iter()
            .filter(|(name, _)| !["type", "id", "parentId", "timestamp"].contains(&name.as_str()))
            .map(|(name, raw)| format!("{}:{}", quoted(name), raw.get()))
            .collect();
        Some(self.next_entry(id, &kind, &timestamp, &others.join(",")))
    }

    /// Makes an entry, a line of JSON. It becomes the parent of the next entry.
    fn next_entry(&mut self, id: u32, kind: &str, timestamp: &str, fields: &str) -> String {
        let parent = self
            .parent
            .map_or_else(|| "null".into(), |parent| format!("\"{parent:08x}\""));
        self.parent = Some(id);
        let timestamp = quoted(timestamp);
        format!(
            "{{\"type\":\"{kind}\",\"id\":\"{id:08x}\",\"parentId\":{parent},\"timestamp\":{timestamp},{fields}}}"
        )
    }

    /// Makes the entries of a message: one, or for a tool message one for each result.
    fn next_entries(&mut self, stored: &StoredMessage) -> Vec<String> {
        let message = &stored.message;
        let original = message
            .metadata
            .get("pi.timestamp")
            .map(|time| in_pi_format(time));
        let timestamp = original.unwrap_or_else(|| iso(stored.created_us));
        let message_time = message.metadata.get(&format!("{LABEL}{MESSAGE_TIMESTAMP}"));
        let message_time: Option<i64> = message_time.and_then(|time| time.parse().ok());
        let ms = message_time.unwrap_or_else(|| stored.created_us.div_euclid(1_000));
        let count = if message.role == Role::Tool {
            message.parts.len()
        } else {
            1
        };
        let mut entries = Vec::new();
        for index in 0..count {
            let id = self
                .ids
                .next(message.metadata.get("pi.id").filter(|_| index == 0));
            if index == 0 {
                self.first_entries.push(id);
            }
            let (kind, fields) = if let Some(command) = original_command(message) {
                ("message", format!("\"message\":{command}"))
            } else if message.role == Role::System {
                let content = content(&message.parts, &BlockFields::of(message));
                (
                    "custom_message",
                    format!("\"customType\":\"{SYSTEM}\",\"content\":{content},\"display\":true"),
                )
            } else {
                (
                    "message",
                    format!(
                        "\"message\":{{{},\"timestamp\":{ms}}}",
                        self.message_fields(message, index)
                    ),
                )
            };
            entries.push(self.next_entry(id, kind, &timestamp, &fields));
        }
        entries
    }

    /// The fields of a message, or of the result at `index` of a tool message, without the time.
    fn message_fields(&self, message: &Message, index: usize) -> String {
        let (labels, fields) = (labels(message), BlockFields::of(message));
        match (message.role, message.parts.get(index)) {
            (Role::Assistant, _) => {
                let usage = message
                    .metadata
                    .get("pi.usage")
                    .filter(|usage| object(usage).get() == usage.as_str());
                let has_calls = message
                    .parts
                    .iter()
                    .any(|part| matches!(part, Part::ToolUse { .. }));
                let stop_reason = message.metadata.get("pi.stopReason").map(String::as_str);
                format!(
                    "\"role\":\"assistant\",\"content\":{},{labels}\"usage\":{},\"stopReason\":{}",
                    blocks(&message.parts, &fields),
                    usage.map_or(NO_USAGE, String::as_str),
                    quoted(stop_reason.unwrap_or(if has_calls { "toolUse" } else { "stop" })),
                )
            }
            (
                Role::Tool,
                Some(Part::ToolResult {
                    id,
                    text,
                    is_error,
                    media,
                }),
            ) => {
                let first_block = (!text.is_empty() || media.is_empty()).then(|| text_block(text));
                let blocks: Vec<String> = first_block
                    .into_iter()
                    .chain(media.iter().map(media_block))
                    .collect();
                let name = self.called_tools.get(id).map_or("tool", String::as_str);
                let name_field = if message.metadata.contains_key("pi.toolName") {
                    String::new()
                } else {
                    format!("\"toolName\":{},", quoted(name))
                };
                format!(
                    "\"role\":\"toolResult\",\"toolCallId\":{},{name_field}\"content\":[{}],{labels}\"isError\":{is_error}",
                    quoted(id),
                    blocks.join(","),
                )
            }
            _ => format!(
                "\"role\":\"user\",{labels}\"content\":{}",
                content(&message.parts, &fields)
            ),
        }
    }
}

impl FormatWriter for PiWriter {
    fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.has_conversation, true) {
            return Err(WriteError::OneOnly(Format::Pi));
        }
        self.created_us = head.created_us.unwrap_or_default();
        let mut head = head.clone();
        // The head keeps what cannot be written as entries.
        let is_writable =
            |text: &str| KeptCompaction::parse(text).is_some() || is_whole_entry(text);
        self.trailing_entries = head
            .metadata
            .remove_entry(ENTRIES)
            .map(|(name, label)| {
                if label.lines().all(is_writable) {
                    return label;
                }
                head.metadata.insert(name, label);
                String::new()
            })
            .unwrap_or_default();
        let head = &head;
        let label = |name: &str| head.metadata.get(name).cloned();
        let id = label("pi.id").unwrap_or_else(|| uuid(&head.identity, &head.title));
        // ai-panel calls this field `createdAt`.
        let original = label("pi.timestamp").or_else(|| label("pi.createdAt"));
        let timestamp = original.map_or_else(|| iso(self.created_us), |time| in_pi_format(&time));
        let cwd = label("pi.cwd").unwrap_or_else(|| "/".into());
        let extra = ConversationExtra::with_system_prompt(Format::Pi, head).to_json();
        let (id, timestamp, cwd) = (quoted(&id), quoted(&timestamp), quoted(&cwd));
        writeln!(
            self.out,
            "{{\"type\":\"session\",\"version\":3,\"id\":{id},\"timestamp\":{timestamp},\"cwd\":{cwd},\"{ANNEAL_KEY}\":{extra}}}"
        )?;
        if !head.title.is_empty() {
            let id = self.ids.next(None);
            let entry = self.next_entry(
                id,
                "session_info",
                &iso(self.created_us),
                &format!("\"name\":{}", quoted(&head.title)),
            );
            writeln!(self.out, "{entry}")?;
        }
        Ok(())
    }

    fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError> {
        let label = stored.message.metadata.get(ENTRIES);
        let read_back = self.write_waiting(label.map_or("", String::as_str))?;
        self.created_us = stored.created_us;
        let entries = self.next_entries(stored);
        // Reads the entries as an import would, to find what only an extra object can express.
        let natives =
            entries
                .iter()
                .filter_map(|text| match parse_entry(text, &mut Notes::new()) {
                    Ok(Entry::Message(message, _)) => Some(*message),
                    _ => None,
                });
        let mut native = merge_messages(natives.collect());
        if !read_back.is_empty() {
            native.metadata.insert(ENTRIES.into(), read_back);
        }
        let more = entries.len().saturating_sub(1);
        for entry in with_extra(
            entries,
            more,
            &native,
            &stored.message,
            ExtraObject::IfNeeded,
        ) {
            writeln!(self.out, "{entry}")?;
        }
        if stored.message.role == Role::Assistant {
            let calls = stored.message.parts.iter().filter_map(|part| match part {
                Part::ToolUse { id, name, .. } => Some((id.clone(), name.clone())),
                _ => None,
            });
            self.called_tools = calls.collect();
        }
        Ok(())
    }

    fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.waiting.push_back(Mark::Summary(summary.clone()));
        Ok(())
    }

    fn write_separator(&mut self) -> Result<(), WriteError> {
        self.waiting.push_back(Mark::Separator);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        let trailing = std::mem::take(&mut self.trailing_entries);
        self.write_waiting(&trailing)?;
        Ok(self.out.flush()?)
    }
}

/// A command that the user ran, as pi wrote it. None: it is another message, or an edit has given
/// it other words.
fn original_command(message: &Message) -> Option<String> {
    let form = message.metadata.get(&format!("{LABEL}{}", command::FORM))?;
    let is_line = !form.contains(['\n', '\r']) && object(form).get() == form.as_str();
    let [Part::Text { text }] = message.parts.as_slice() else {
        return None;
    };
    let command = command::restore(form, text).filter(|_| is_line)?;
    let entry = format!("{{\"type\":\"message\",\"message\":{command}}}");
    match parse_entry(&entry, &mut Notes::new()) {
        Ok(Entry::Message(native, None))
            if (native.role, &native.parts) == (message.role, &message.parts) =>
        {
            Some(command)
        }
        _ => None,
    }
}

/// Assigns ids of eight hexadecimal digits, each once.
#[derive(Default)]
struct Ids {
    used: HashSet<u32>,
    count: u32,
}

impl Ids {
    /// Assigns `wanted` if it has this form and is not used, otherwise a new id.
    fn next(&mut self, wanted: Option<&String>) -> u32 {
        let wanted = wanted.and_then(|id| {
            u32::from_str_radix(id, 16)
                .ok()
                .filter(|number| format!("{number:08x}") == *id)
        });
        if let Some(id) = wanted.filter(|id| self.used.insert(*id)) {
            return id;
        }
        loop {
            self.count = self.count.wrapping_add(1);
            // Knuth's multiplicative hash. The factor is odd, so that two counts never give the
            // same id.
            let id = self.count.wrapping_mul(0x9e37_79b1);
            if self.used.insert(id) {
                return id;
            }
        }
    }
}

/// A UUID for a session without an id. The same conversation always gets the same UUID.
fn uuid(identity: &str, title: &str) -> String {
    let digest = digest::of_fields([identity.as_bytes(), title.as_bytes()]);
    let hex = half_hex(&digest);
    // Digits 12 and 16 are replaced by the version, 4, and the variant, 8.
    format!(
        "{}-{}-4{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

/// The labels of a message as JSON fields, each followed by a comma. Answers always have `api`,
/// `provider` and `model`.
fn labels(message: &Message) -> String {
    let mut fields = String::new();
    let labels_with_field = message
        .metadata
        .iter()
        .filter(|(key, _)| !LABELS_WITHOUT_FIELD.contains(&key.as_str()));
    for (name, value) in
        labels_with_field.filter_map(|(key, value)| Some((key.strip_prefix(LABEL)?, value)))
    {
        if is_message_field(name) {
            let is_json = !value.contains(['\n', '\r']) && object(value).get() == value;
            let value = if is_json {
                value.clone()
            } else {
                quoted(value)
            };
            fields.extend([&quoted(name), ":", &value, ","]);
        }
    }
    if message.role == Role::Assistant {
        for name in ["api", "provider", "model"] {
            if !message.metadata.contains_key(&format!("{LABEL}{name}")) {
                fields.extend(["\"", name, "\":\"unknown\","]);
            }
        }
    }
    fields
}

/// Whether a label of this name is written as a field of the message. Fields that the message
/// itself gives are not.
fn is_message_field(name: &str) -> bool {
    !matches!(
        name,
        "role"
            | "content"
            | "timestamp"
            | "toolCallId"
            | "tool_call_id"
            | "isError"
            | "command"
            | "output"
            | "summary"
            | ANNEAL_KEY
    )
}

/// The content of a user or system message: a string, or blocks.
fn content(parts: &[Part], fields: &BlockFields) -> String {
    match parts {
        [Part::Text { text }] if !fields.has(0) => quoted(text),
        parts => blocks(parts, fields),
    }
}

fn blocks(parts: &[Part], fields: &BlockFields) -> String {
    let blocks = parts.iter().enumerate().map(|(index, part)| {
        let mut block = block(part);
        fields.write_into(index, &mut block);
        block
    });
    format!("[{}]", blocks.collect::<Vec<_>>().join(","))
}

fn block(part: &Part) -> String {
    match part {
        Part::Text { text } | Part::ToolResult { text, .. } => text_block(text),
        Part::Media(media) => media_block(media),
        Part::ToolUse { id, name, input } => {
            let (id, name) = (quoted(id), quoted(name));
            format!(
                "{{\"type\":\"toolCall\",\"id\":{id},\"name\":{name},\"arguments\":{}}}",
                object(input).get()
            )
        }
        Part::Reasoning {
            text,
            signature,
            redacted,
            ..
        } => {
            let redacted = if *redacted { ",\"redacted\":true" } else { "" };
            let signature = if signature.is_empty() {
                String::new()
            } else {
                format!(",\"thinkingSignature\":{}", quoted(signature))
            };
            format!(
                "{{\"type\":\"thinking\",\"thinking\":{}{signature}{redacted}}}",
                quoted(text)
            )
        }
    }
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text))
}

/// An image block. A text block with the URI, if the bytes are not in the URI.
fn media_block(media: &Media) -> String {
    match parse_data_uri(&media.uri) {
        Some((media_type, base64)) => {
            format!(
                "{{\"type\":\"image\",\"data\":{},\"mimeType\":{}}}",
                quoted(base64),
                quoted(media_type)
            )
        }
        None => text_block(&format!("[{}: {}]", media.media_type, media.uri)),
    }
}
