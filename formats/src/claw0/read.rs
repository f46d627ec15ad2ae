//! Reads claw0 records the way claw0's `_rebuild_history` does, which makes messages of its log.

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

use anneal_core::{
    limits::PARTS_PER_MESSAGE,
    message::{Message, Part, Role},
};

use super::{ANNEAL_TYPE, TIMES};
use crate::{
    Head, ImportOutcome, Location, ReadError, ReadOptions,
    blocks::{self, split_tool_results},
    conversation_extra::{ConversationExtra, SummaryRecord},
    cursor::{Cursor, ELEMENT_BYTES, Scanned},
    emitter::Emitter,
    json::{self, Fields, Notes, Unreadable, short_name},
    message_extra::{ANNEAL_KEY, MessageExtra, merge_messages},
};

/// The fields that are read, by record type. `type`, `ts` and `anneal` are read in every record.
const FIELDS: [(&str, &[&str]); 4] = [
    ("user", &["content"]),
    ("assistant", &["content"]),
    ("tool_use", &["tool_use_id", "name", "input"]),
    ("tool_result", &["tool_use_id", "content", "is_error"]),
];

/// Reads a file of records, which is one conversation.
pub(crate) fn read<R: Read + Seek>(
    mut cursor: Cursor<R>,
    options: &ReadOptions,
    out: Emitter,
) -> Result<(), ReadError> {
    let head = Head {
        identity: options.name.clone(),
        title: options.name.clone(),
        ..Default::default()
    };
    let mut reader = Claw0Reader {
        out,
        head: Some(head),
        has_head_line: false,
        pending: None,
        content_call_ids: Vec::new(),
    };
    loop {
        let location = Location::Line(cursor.position().line);
        match cursor.read_line(ELEMENT_BYTES)? {
            Scanned::Absent | Scanned::Truncated => break,
            Scanned::TooLong => reader.refuse(location, "it is longer than a message may be")?,
            Scanned::Bytes(bytes) if bytes.trim_ascii().is_empty() => {}
            Scanned::Bytes(bytes) => reader.add_line(bytes, location)?,
        }
    }
    reader.flush()?;
    if reader.has_head_line {
        reader.emit_head()?;
    }
    reader.out.finish()
}

struct Claw0Reader<'a> {
    out: Emitter<'a>,
    /// Set until the head is emitted, before the first item.
    head: Option<Head>,
    /// Whether the file has a head line, so that it is a conversation even without messages.
    has_head_line: bool,
    pending: Option<PendingMessage>,
    /// Ids of the tool calls in the content of the last assistant record; empty after a user
    /// record. Such a call may have a record of its own as well, which repeats it.
    content_call_ids: Vec<String>,
}

/// A message that may still get parts from the next records.
struct PendingMessage {
    location: Location,
    message: Message,
    times: Vec<String>,
    extra: Option<MessageExtra>,
    notes: Notes,
}

impl PendingMessage {
    /// Whether the message can get one more part from a record of this role.
    fn accepts(&self, role: Role) -> bool {
        self.message.role == role && self.message.parts.len() < PARTS_PER_MESSAGE
    }
}

/// A parsed line.
enum Record {
    /// The messages of a user or assistant record: one, or two if tool results are split off.
    Message(Vec<Message>),
    /// A tool call: a part of the assistant message before it, or the first part of a new one.
    ToolCall(Part),
    /// A tool result: a part of the tool message before it, or the first part of a new one.
    ToolResult(Part),
    /// A line that anneal wrote about the conversation.
    Head(Box<ConversationExtra>),
    /// A summary that anneal wrote.
    Summary(SummaryRecord),
    /// A separator that anneal wrote.
    Separator,
    /// A record of another type, by its type.
    Other(String),
}

impl Claw0Reader<'_> {
    fn refuse(&mut self, location: Location, what: impl Into<String>) -> Result<(), ReadError> {
        self.flush()?;
        self.out.refuse(location, what)
    }

    fn add_line(&mut self, bytes: Vec<u8>, location: Location) -> Result<(), ReadError> {
        let mut notes = Notes::new();
        let read = json::parse_bytes(bytes, &mut notes, |text, notes| {
            let fields = Fields::parse(text)?;
            let extra = if fields.text("type")?.as_deref() == Some(ANNEAL_TYPE) {
                None
            } else {
                MessageExtra::of(&fields)?
            };
            Ok((
                parse_record(&fields, notes)?,
                fields.text_or_raw("ts")?,
                extra,
            ))
        });
        let (record, time, extra) = match read {
            Ok(read) => read,
            Err(Unreadable(what)) => return self.refuse(location, what),
        };
        match record {
            Record::Message(natives) => self.add_message(location, natives, time, extra, notes),
            Record::ToolCall(part) => self.add_tool_call(location, part, time, extra, notes),
            Record::ToolResult(part) => {
                self.join_part(location, Role::Tool, part, time, extra, notes)
            }
            Record::Head(conversation) => {
                self.has_head_line = true;
                if let Some(head) = &mut self.head {
                    let title = std::mem::take(&mut head.title);
                    *head = conversation.head();
                    if head.title.is_empty() {
                        head.title = title;
                    }
                }
                Ok(())
            }
            Record::Summary(summary) => {
                self.flush()?;
                self.emit_head()?;
                self.out.emit_summary(summary.into())
            }
            Record::Separator => {
                self.flush()?;
                self.emit_head()?;
                self.out.emit_separator()
            }
            Record::Other(kind) => self.out.remark(
                location,
                ImportOutcome::SetAside,
                format!("a record of type {kind}"),
            ),
        }
    }

    /// Starts a message with its own record, and remembers the tool calls in its content.
    /// `natives`: what the record's own fields yield, without the object `anneal`.
    fn add_message(
        &mut self,
        location: Location,
        natives: Vec<Message>,
        time: Option<String>,
        extra: Option<MessageExtra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        self.flush()?;
        self.content_call_ids.clear();
        let parts = natives
            .iter()
            .filter(|native| native.role == Role::Assistant)
            .flat_map(|native| &native.parts);
        self.content_call_ids
            .extend(parts.filter_map(|part| match part {
                Part::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            }));
        // If there are two messages, the time, the object `anneal` and the notes of the record go
        // to the second one.
        let mut natives = natives;
        let last = natives.pop();
        for message in natives {
            self.emit(PendingMessage {
                location,
                message,
                times: Vec::new(),
                extra: None,
                notes: Notes::new(),
            })?;
        }
        self.pending = last.map(|message| PendingMessage {
            location,
            message,
            times: Vec::from_iter(time),
            extra,
            notes,
        });
        Ok(())
    }

    fn add_tool_call(
        &mut self,
        location: Location,
        part: Part,
        time: Option<String>,
        extra: Option<MessageExtra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        let is_repeated =
            matches!(&part, Part::ToolUse { id, .. } if self.content_call_ids.contains(id));
        if is_repeated && extra.is_none() {
            return self.out.remark(
                location,
                ImportOutcome::SetAside,
                "a tool_use record that repeats a call of the assistant record",
            );
        }
        self.join_part(location, Role::Assistant, part, time, extra, notes)
    }

    /// Adds a part to the pending message if that accepts one of this role and the record has no
    /// object `anneal`. Otherwise starts a new message.
    fn join_part(
        &mut self,
        location: Location,
        role: Role,
        part: Part,
        time: Option<String>,
        extra: Option<MessageExtra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        match &mut self.pending {
            Some(pending) if extra.is_none() && pending.accepts(role) => {
                pending.message.parts.push(part);
                pending.times.extend(time);
                pending.notes.extend(notes);
            }
            _ => {
                self.flush()?;
                let message = Message {
                    role,
                    parts: vec![part],
                    metadata: BTreeMap::new(),
                };
                self.pending = Some(PendingMessage {
                    location,
                    message,
                    times: Vec::from_iter(time),
                    extra,
                    notes,
                });
            }
        }
        Ok(())
    }

    /// Emits the pending message, if there is one.
    fn flush(&mut self) -> Result<(), ReadError> {
        self.pending
            .take()
            .map_or(Ok(()), |pending| self.emit(pending))
    }

    /// Emits the head of the conversation, once, before its first item.
    fn emit_head(&mut self) -> Result<(), ReadError> {
        self.head.take().map_or(Ok(()), |head| {
            self.out.emit_conversation(Location::WholeFile, head)
        })
    }

    fn emit(&mut self, pending: PendingMessage) -> Result<(), ReadError> {
        self.emit_head()?;
        let PendingMessage {
            location,
            message,
            times,
            extra,
            notes,
        } = pending;
        self.out
            .add_record(location, vec![with_times(message, &times)], extra, notes)
            .map(drop)
    }
}

/// The message with the label that holds the times of its records. A message without parts gets an
/// empty text.
pub(super) fn with_times(message: Message, times: &[String]) -> Message {
    let mut message = merge_messages(vec![message]);
    if !times.is_empty() {
        message.metadata.insert(TIMES.into(), times_label(times));
    }
    message
}

/// The value of the label with the times of a message's records: one time if all are equal.
pub(super) fn times_label(times: &[String]) -> String {
    let same = times.iter().all(|time| *time == times[0]);
    if same {
        times[0].clone()
    } else {
        times.join(" ")
    }
}

fn parse_record(fields: &Fields, notes: &mut Notes) -> Result<Record, Unreadable> {
    let kind = fields.required_text("type")?;
    if let Some((_, read)) = FIELDS.iter().find(|(name, _)| *name == kind) {
        let read: Vec<&str> = read
            .iter()
            .copied()
            .chain(["type", "ts", ANNEAL_KEY])
            .collect();
        notes.note_unread_fields(fields, &read, &format!("{kind} records"));
    }
    let content = |notes: &mut Notes| {
        let raw = fields
            .raw("content")
            .ok_or_else(|| Unreadable::new("it needs a field `content`"))?;
        blocks::parse_content(raw, notes)
    };
    Ok(match kind.as_str() {
        "user" => Record::Message(split_tool_results(Role::User, content(notes)?, notes)),
        "assistant" => Record::Message(split_tool_results(Role::Assistant, content(notes)?, notes)),
        "tool_use" => Record::ToolCall(Part::ToolUse {
            id: fields.required_text("tool_use_id")?,
            name: fields.required_text("name")?,
            input: fields.raw("input").unwrap_or("{}").to_owned(),
        }),
        "tool_result" => Record::ToolResult(blocks::parse_tool_result(
            fields.required_text("tool_use_id")?,
            fields,
            notes,
        )?),
        ANNEAL_TYPE if fields.has("summary") => {
            let summary = fields.raw("summary").map(serde_json::from_str).transpose();
            Record::Summary(
                summary
                    .ok()
                    .flatten()
                    .ok_or_else(|| Unreadable::new("its summary cannot be read"))?,
            )
        }
        ANNEAL_TYPE if fields.has("separator") => Record::Separator,
        ANNEAL_TYPE => Record::Head(Box::new(ConversationExtra::of(fields)?.unwrap_or_default())),
        other => Record::Other(short_name(other)),
    })
}

/// The message that a reader gets from these records, without the object `anneal`.
pub(super) fn native_message(records: &[String]) -> Message {
    let mut natives = Vec::new();
    let mut times = Vec::new();
    for text in records {
        let fields = Fields::parse(text).expect("a record is an object");
        times.extend(fields.text_or_raw("ts").ok().flatten());
        let one_part_message = |role, part| Message {
            role,
            parts: vec![part],
            metadata: BTreeMap::new(),
        };
        match parse_record(&fields, &mut Notes::new()) {
            Ok(Record::Message(messages)) => natives.extend(messages),
            Ok(Record::ToolCall(call)) => natives.push(one_part_message(Role::Assistant, call)),
            Ok(Record::ToolResult(result)) => natives.push(one_part_message(Role::Tool, result)),
            _ => {}
        }
    }
    let native = natives.into_iter().reduce(|mut whole, native| {
        whole.parts.extend(native.parts);
        whole
    });
    let empty = Message {
        role: Role::User,
        parts: Vec::new(),
        metadata: BTreeMap::new(),
    };
    with_times(native.unwrap_or(empty), &times)
}
