//! claw0's records read as its own `_rebuild_history` does.

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

use anneal_core::{
    limits::PARTS_PER_MESSAGE,
    message::{Message, Part, Role},
};

use super::{OURS, TIMES};
use crate::{
    Fate, Head, Place, ReadError, ReadOptions,
    blocks::{self, messages},
    cursor::{Cursor, ELEMENT_BYTES, Scanned},
    extra::{Extra, KEY, joined},
    json::{self, Bad, Fields, Notes, named},
    out::Out,
    talks::{About, SaidSummary},
};

/// What is read of each kind of records, besides what is read of all.
const FIELDS: [(&str, &[&str]); 4] = [
    ("user", &["content"]),
    ("assistant", &["content"]),
    ("tool_use", &["tool_use_id", "name", "input"]),
    ("tool_result", &["tool_use_id", "content", "is_error"]),
];

/// Reads a file of records: one conversation.
pub(crate) fn read<R: Read + Seek>(mut cursor: Cursor<R>, options: &ReadOptions, out: Out) -> Result<(), ReadError> {
    let head = Head { identity: options.name.clone(), title: options.name.clone(), ..Default::default() };
    let mut talk = Talk { out, head: Some(head), headed: false, pending: None, called: Vec::new() };
    loop {
        let line = Place::Line(cursor.place().line);
        match cursor.line(ELEMENT_BYTES)? {
            Scanned::Nothing | Scanned::Torn => break,
            Scanned::Long => talk.refuse(line, "it is longer than any message")?,
            Scanned::Bytes(bytes) if bytes.trim_ascii().is_empty() => {}
            Scanned::Bytes(bytes) => talk.line(bytes, line)?,
        }
    }
    talk.flush()?;
    if talk.headed {
        talk.begin()?;
    }
    talk.out.end()
}

struct Talk<'a> {
    out: Out<'a>,
    /// Until the first message.
    head: Option<Head>,
    /// Whether the file says itself that there is a conversation, even without messages.
    headed: bool,
    pending: Option<Pending>,
    /// Calls that the last assistant's content makes itself: their records say them again.
    called: Vec<String>,
}

/// A message that records may still join.
struct Pending {
    line: Place,
    message: Message,
    times: Vec<String>,
    extra: Option<Extra>,
    notes: Notes,
}

impl Pending {
    /// Whether one more part of this role fits into it.
    fn takes(&self, role: Role) -> bool {
        self.message.role == role && self.message.parts.len() < PARTS_PER_MESSAGE
    }
}

/// What a line is.
enum Record {
    /// A message, or the beginning of one.
    Says(Vec<Message>),
    /// A call of the message before it, or of its own.
    Calls(Part),
    /// A result, with those before it.
    Answers(Part),
    Head(Box<About>),
    Summary(SaidSummary),
    Separator,
    Other(String),
}

impl Talk<'_> {
    fn refuse(&mut self, line: Place, what: impl Into<String>) -> Result<(), ReadError> {
        self.flush()?;
        self.out.refuse(line, what)
    }

    fn line(&mut self, bytes: Vec<u8>, line: Place) -> Result<(), ReadError> {
        let mut notes = Notes::new();
        let read = json::read(bytes, &mut notes, |text, notes| {
            let fields = Fields::parse(text)?;
            let extra = if fields.text("type")?.as_deref() == Some(OURS) { None } else { Extra::of(&fields)? };
            Ok((record(&fields, notes)?, fields.label("ts")?, extra))
        });
        let (record, time, extra) = match read {
            Ok(read) => read,
            Err(Bad(what)) => return self.refuse(line, what),
        };
        match record {
            Record::Says(natives) => self.says(line, natives, time, extra, notes),
            Record::Calls(part) => self.calls(line, part, time, extra, notes),
            Record::Answers(part) => self.joins(line, Role::Tool, part, time, extra, notes),
            Record::Head(about) => {
                self.headed = true;
                if let Some(head) = &mut self.head {
                    let title = std::mem::take(&mut head.title);
                    *head = about.head();
                    if head.title.is_empty() {
                        head.title = title;
                    }
                }
                Ok(())
            }
            Record::Summary(summary) => {
                self.flush()?;
                self.begin()?;
                self.out.summary(summary.into())
            }
            Record::Separator => {
                self.flush()?;
                self.begin()?;
                self.out.separator()
            }
            Record::Other(kind) => self.out.remark(line, Fate::SetAside, format!("a record of type {kind}")),
        }
    }

    /// A message by its own record; what its content calls is known.
    fn says(
        &mut self,
        line: Place,
        natives: Vec<Message>,
        time: Option<String>,
        extra: Option<Extra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        self.flush()?;
        self.called.clear();
        let parts = natives.iter().filter(|native| native.role == Role::Assistant).flat_map(|native| &native.parts);
        self.called.extend(parts.filter_map(|part| match part {
            Part::ToolUse { id, .. } => Some(id.clone()),
            _ => None,
        }));
        let mut natives = natives;
        let last = natives.pop();
        for message in natives {
            self.tell(Pending { line, message, times: Vec::new(), extra: None, notes: Notes::new() })?;
        }
        self.pending = last.map(|message| Pending { line, message, times: Vec::from_iter(time), extra, notes });
        Ok(())
    }

    fn calls(
        &mut self,
        line: Place,
        part: Part,
        time: Option<String>,
        extra: Option<Extra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        let again = matches!(&part, Part::ToolUse { id, .. } if self.called.contains(id));
        if again && extra.is_none() {
            return self.out.remark(line, Fate::SetAside, "a tool_use that its assistant's content holds already");
        }
        self.joins(line, Role::Assistant, part, time, extra, notes)
    }

    /// A part of the message before it, where that is of this role; of its own otherwise.
    fn joins(
        &mut self,
        line: Place,
        role: Role,
        part: Part,
        time: Option<String>,
        extra: Option<Extra>,
        notes: Notes,
    ) -> Result<(), ReadError> {
        match &mut self.pending {
            Some(pending) if extra.is_none() && pending.takes(role) => {
                pending.message.parts.push(part);
                pending.times.extend(time);
                pending.notes.extend(notes);
            }
            _ => {
                self.flush()?;
                let message = Message { role, parts: vec![part], metadata: BTreeMap::new() };
                self.pending = Some(Pending { line, message, times: Vec::from_iter(time), extra, notes });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ReadError> {
        self.pending.take().map_or(Ok(()), |pending| self.tell(pending))
    }

    /// Tells the conversation's head, before anything that belongs to it.
    fn begin(&mut self) -> Result<(), ReadError> {
        self.head.take().map_or(Ok(()), |head| self.out.conversation(Place::Whole, head))
    }

    fn tell(&mut self, pending: Pending) -> Result<(), ReadError> {
        self.begin()?;
        let Pending { line, message, times, extra, notes } = pending;
        self.out.record(line, vec![timed(message, &times)], extra, notes).map(drop)
    }
}

/// The message with the times of its records.
pub(super) fn timed(message: Message, times: &[String]) -> Message {
    let mut message = joined(vec![message]);
    if !times.is_empty() {
        message.metadata.insert(TIMES.into(), labelled(times));
    }
    message
}

/// The times of a message's records as its label has them: one where all are the same.
pub(super) fn labelled(times: &[String]) -> String {
    let same = times.iter().all(|time| *time == times[0]);
    if same { times[0].clone() } else { times.join(" ") }
}

fn record(fields: &Fields, notes: &mut Notes) -> Result<Record, Bad> {
    let kind = fields.must("type")?;
    if let Some((_, read)) = FIELDS.iter().find(|(name, _)| *name == kind) {
        let read: Vec<&str> = read.iter().copied().chain(["type", "ts", KEY]).collect();
        notes.unread(fields, &read, &format!("{kind} records"));
    }
    let content = |notes: &mut Notes| {
        let raw = fields.raw("content").ok_or_else(|| Bad::new("it needs a content"))?;
        blocks::content(raw, notes)
    };
    Ok(match kind.as_str() {
        "user" => Record::Says(messages(Role::User, content(notes)?, notes)),
        "assistant" => Record::Says(messages(Role::Assistant, content(notes)?, notes)),
        "tool_use" => Record::Calls(Part::ToolUse {
            id: fields.must("tool_use_id")?,
            name: fields.must("name")?,
            input: fields.raw("input").unwrap_or("{}").to_owned(),
        }),
        "tool_result" => Record::Answers(blocks::result(fields.must("tool_use_id")?, fields, notes)?),
        OURS if fields.has("summary") => {
            let summary = fields.raw("summary").map(serde_json::from_str).transpose();
            Record::Summary(summary.ok().flatten().ok_or_else(|| Bad::new("its summary cannot be read"))?)
        }
        OURS if fields.has("separator") => Record::Separator,
        OURS => Record::Head(Box::new(About::of(fields)?.unwrap_or_default())),
        other => Record::Other(named(other)),
    })
}

/// The message that these records say together, as the reading of a file would have it.
pub(super) fn said(records: &[String]) -> Message {
    let mut natives = Vec::new();
    let mut times = Vec::new();
    for text in records {
        let fields = Fields::parse(text).expect("a record is an object");
        times.extend(fields.label("ts").ok().flatten());
        let part = |role, part| Message { role, parts: vec![part], metadata: BTreeMap::new() };
        match record(&fields, &mut Notes::new()) {
            Ok(Record::Says(says)) => natives.extend(says),
            Ok(Record::Calls(call)) => natives.push(part(Role::Assistant, call)),
            Ok(Record::Answers(answer)) => natives.push(part(Role::Tool, answer)),
            _ => {}
        }
    }
    let native = natives.into_iter().reduce(|mut whole, native| {
        whole.parts.extend(native.parts);
        whole
    });
    let empty = Message { role: Role::User, parts: Vec::new(), metadata: BTreeMap::new() };
    timed(native.unwrap_or(empty), &times)
}
