//! Reads lists of messages, one message at a time.

use std::{
    collections::VecDeque,
    io::{Read, Seek},
};

use anneal_core::message::{Message, Role, plain_text};

use super::{Dialect, first_element_matches, read_outline};
use crate::{
    Head, ImportOutcome, Location, ReadError, ReadOptions,
    conversation_extra::{self, ConversationExtra, MARKS_KEY, Mark},
    cursor::{Cursor, ELEMENT_BYTES, Layout, Position, Scanned},
    emitter::Emitter,
    json::{self, Fields, Notes, Unreadable, short_name},
    message_extra::{ANNEAL_KEY, MessageExtra},
    storage_limits,
};

/// Largest field beside the list that is read, in bytes.
const FIELD_BYTES: usize = 16 * 1024 * 1024;
/// Largest field beside the list that becomes metadata of the conversation, in bytes.
const LABEL_BYTES: usize = 256;
/// The remark on an empty entry of a list, as in `[a,,b]`.
const EMPTY_ENTRY: &str = "the list has an empty entry before a comma";

/// Reads a file of the dialect.
pub(crate) fn read<D: Dialect, R: Read + Seek>(
    mut cursor: Cursor<R>,
    dialect: D,
    options: &ReadOptions,
    out: Emitter,
) -> Result<(), ReadError> {
    let mut reader = MessageListReader {
        out,
        dialect,
        title: options.name.clone(),
        conversation: None,
    };
    match cursor.detect_layout()? {
        Layout::SingleValue => reader.read_values(&mut cursor)?,
        Layout::Lines => reader.read_lines(&mut cursor)?,
    }
    reader.close()?;
    reader.out.finish()
}

struct MessageListReader<'a, D> {
    out: Emitter<'a>,
    dialect: D,
    /// The title of conversations that have none; a number is added where there may be several.
    title: String,
    conversation: Option<OpenConversation>,
}

/// The conversation being read.
struct OpenConversation {
    /// Set until the head is emitted. It waits for the first message, which may be the system
    /// prompt.
    head: Option<Head>,
    location: Location,
    /// Notes about the head.
    notes: Notes,
    /// Why the head could not be read.
    head_error: Option<String>,
    /// Messages so far, kept or refused.
    messages: u64,
    /// Summaries and separators that are not emitted yet.
    marks: VecDeque<Mark>,
}

impl<D: Dialect> MessageListReader<'_, D> {
    /// Reads a file of values that may span lines: conversations, lists of conversations, or
    /// messages.
    fn read_values<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<(), ReadError> {
        for number in 1.. {
            let Some(first) = cursor.peek_non_blank()? else {
                break;
            };
            let location = Location::Line(cursor.position().line);
            let title = if number == 1 {
                self.title.clone()
            } else {
                format!("{} {number}", self.title)
            };
            let is_whole = match first {
                b'[' if !first_element_matches(cursor, D::identifies_message)? => {
                    self.read_conversation_list(cursor, &title)?
                }
                // A message that follows a message belongs to the same conversation.
                b'{' if self.conversation.is_some() && !has_list(cursor, D::LISTS)? => {
                    self.read_next_message(cursor, location)?
                }
                b'[' | b'{' => self.read_conversation(cursor, location, title)?,
                _ => {
                    self.read_conversation(cursor, location, title)?;
                    false
                }
            };
            let skipped_lines = if is_whole {
                0
            } else {
                cursor.skip_to_next_value()?
            };
            if skipped_lines > 1 {
                self.out.refuse(
                    location,
                    format!("{skipped_lines} lines up to the next value cannot be read"),
                )?;
            }
        }
        Ok(())
    }

    /// Reads a list of conversations. Returns whether the list is complete.
    fn read_conversation_list<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        title: &str,
    ) -> Result<bool, ReadError> {
        cursor.consume_if(b'[')?;
        for number in 1.. {
            if cursor.consume_if(b']')? {
                return Ok(true);
            }
            let next = cursor.peek_non_blank()?;
            let location = Location::Entry {
                line: cursor.position().line,
                entry: number,
            };
            match next {
                None => {
                    self.out
                        .refuse(location, "the file ends in the middle of this item")?;
                    break;
                }
                Some(b',') => {
                    skip_commas(cursor)?;
                    self.out.refuse(location, EMPTY_ENTRY)?;
                    continue;
                }
                Some(_) => {}
            }
            if !self.read_conversation(cursor, location, format!("{title} {number}"))? {
                break;
            }
            self.close()?;
            cursor.consume_if(b',')?;
        }
        Ok(false)
    }

    /// Reads a file of lines: messages of one conversation, or conversations.
    fn read_lines<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<(), ReadError> {
        while cursor.peek_non_blank()?.is_some() {
            let start = cursor.position();
            let skipped = cursor.skip_line()?;
            let next = cursor.position();
            if skipped == Scanned::Absent {
                break;
            }
            cursor.seek_to(start)?;
            cursor.end_at(next.offset);
            self.read_line(cursor, start)?;
            cursor.end_at(u64::MAX);
            cursor.seek_to(next)?;
        }
        Ok(())
    }

    fn read_line<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        start: Position,
    ) -> Result<(), ReadError> {
        let location = Location::Line(start.line);
        if cursor.peek()? == Some(b'{') {
            let outline = read_outline(cursor, D::LISTS, LABEL_BYTES)?;
            let truncated = outline.truncated && outline.list.is_none();
            cursor.seek_to(start)?;
            if truncated {
                return self.out.refuse(location, "it is not JSON, or is cut off");
            }
            if outline.list.is_none() {
                return match cursor.read_line(ELEMENT_BYTES)? {
                    Scanned::Bytes(bytes) => self.add_message(bytes, location),
                    _ => self
                        .out
                        .refuse(location, "it is longer than a message may be"),
                };
            }
        }
        let title = format!("{} {}", self.title, start.line);
        let is_whole = self.read_conversation(cursor, location, title)?;
        self.close()?;
        cursor.consume_if(b',')?;
        if is_whole && cursor.peek_non_blank()?.is_some() {
            return self
                .out
                .refuse(location, "the line has more text after its first value");
        }
        Ok(())
    }

    /// Reads a list of messages, an object around a list, or a single message that others may
    /// follow. Returns whether the value is complete.
    fn read_conversation<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        location: Location,
        title: String,
    ) -> Result<bool, ReadError> {
        self.close()?;
        let start = cursor.position();
        let mut is_whole = true;
        match cursor.peek_non_blank()? {
            Some(b'[') => {
                self.open(
                    Head {
                        title,
                        ..Default::default()
                    },
                    location,
                );
                is_whole = self.read_messages(cursor)?;
            }
            Some(b'{') => {
                let outline = read_outline(cursor, D::LISTS, FIELD_BYTES)?;
                let after = cursor.position();
                is_whole = !outline.truncated;
                match outline.list {
                    Some(list) => {
                        self.open_with_fields(&outline.fields(), location, title);
                        cursor.seek_to(list)?;
                        let list_is_whole = self.read_messages(cursor)?;
                        cursor.seek_to(after)?;
                        if outline.truncated && list_is_whole {
                            self.emit_head()?;
                            self.out
                                .refuse(location, "the file ends in the middle of this item")?;
                        }
                    }
                    None if outline.fields().names().any(D::identifies_message) => {
                        self.open(
                            Head {
                                title,
                                ..Default::default()
                            },
                            location,
                        );
                        cursor.seek_to(start)?;
                        return self.read_next_message(cursor, location);
                    }
                    None => self.out.refuse(
                        location,
                        format!("it is not a message, and has no list `{}`", D::LISTS[0]),
                    )?,
                }
            }
            None => {}
            Some(_) => {
                is_whole = matches!(cursor.skip_value()?, Scanned::Bytes(_));
                self.out.refuse(
                    location,
                    "it is neither a list of messages nor an object that holds one",
                )?;
            }
        }
        self.close()?;
        Ok(is_whole)
    }

    /// Begins a conversation.
    fn open(&mut self, head: Head, location: Location) {
        self.dialect.reset();
        let (notes, marks) = (Notes::new(), VecDeque::new());
        self.conversation = Some(OpenConversation {
            head: Some(head),
            location,
            notes,
            head_error: None,
            messages: 0,
            marks,
        });
    }

    /// Begins a conversation with the fields beside its list.
    fn open_with_fields(&mut self, fields: &Fields, location: Location, title: String) {
        let mut notes = Notes::new();
        let read = self
            .parse_head(fields, title.clone(), &mut notes)
            .and_then(|head| Ok((head, conversation_extra::parse_marks(fields)?)));
        let (head, marks, head_error) = match read {
            Ok((head, marks)) => (head, marks, None),
            Err(Unreadable(what)) => (
                Head {
                    title,
                    ..Default::default()
                },
                VecDeque::new(),
                Some(what),
            ),
        };
        self.dialect.reset();
        self.conversation = Some(OpenConversation {
            head: Some(head),
            location,
            notes,
            head_error,
            messages: 0,
            marks,
        });
    }

    fn parse_head(
        &self,
        fields: &Fields,
        title: String,
        notes: &mut Notes,
    ) -> Result<Head, Unreadable> {
        let system_prompt = self.dialect.parse_system_prompt(fields, notes)?;
        if let Some(extra) = ConversationExtra::of(fields)? {
            let head = extra.head();
            let title = if head.title.is_empty() {
                title
            } else {
                head.title
            };
            return Ok(Head {
                title,
                system_prompt,
                ..head
            });
        }
        let mut head = Head {
            title,
            system_prompt,
            ..Default::default()
        };
        let mut set_aside = Vec::new();
        for key in fields
            .names()
            .filter(|key| !matches!(*key, ANNEAL_KEY | MARKS_KEY))
        {
            let Some(raw) = fields.raw(key) else { continue };
            match (key, json::is_text(raw)) {
                ("system", _) if !head.system_prompt.is_empty() || raw == "\"\"" => {}
                ("title" | "name", true) => head.title = json::text(raw)?,
                ("agent_id", true) => head.agent_id = json::text(raw)?,
                _ if raw.len() <= LABEL_BYTES && !raw.starts_with(['{', '[']) => {
                    head.metadata.insert(
                        format!("{}.{key}", D::FORMAT.name()),
                        json::text_or_raw(raw)?,
                    );
                }
                _ => set_aside.push(short_name(key)),
            }
        }
        if !set_aside.is_empty() {
            notes.push((
                ImportOutcome::SetAside,
                format!("fields beside the messages: {}", set_aside.join(", ")),
            ));
        }
        Ok(head)
    }

    /// Reads the messages of the next list. Returns whether the list is complete.
    fn read_messages<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<bool, ReadError> {
        cursor.consume_if(b'[')?;
        for number in 1.. {
            if cursor.consume_if(b']')? {
                return Ok(true);
            }
            let location = Location::Entry {
                line: cursor.position().line,
                entry: number,
            };
            if skip_commas(cursor)? {
                self.refuse(location, EMPTY_ENTRY)?;
                continue;
            }
            if !self.read_next_message(cursor, location)? {
                break;
            }
            cursor.consume_if(b',')?;
        }
        Ok(false)
    }

    /// Reads the next message. Returns whether it is complete.
    fn read_next_message<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        location: Location,
    ) -> Result<bool, ReadError> {
        let start = cursor.position();
        match cursor.read_value(ELEMENT_BYTES)? {
            Scanned::Bytes(bytes) => self.add_message(bytes, location)?,
            Scanned::TooLong => self.refuse(location, "it is longer than a message may be")?,
            Scanned::Absent => {
                self.refuse(
                    location,
                    "no message begins here; the rest of the list is left out",
                )?;
                return Ok(false);
            }
            Scanned::Truncated => {
                let bytes = cursor.position().offset - start.offset;
                self.refuse(
                    location,
                    format!(
                        "it is cut off, or is not JSON: {bytes} bytes up to the end of the file"
                    ),
                )?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Remarks on a message that cannot be read, and counts it.
    fn refuse(&mut self, location: Location, what: impl Into<String>) -> Result<(), ReadError> {
        self.emit_head()?;
        self.out.refuse(location, what)?;
        self.count_message()
    }

    /// Parses and emits a message.
    fn add_message(&mut self, bytes: Vec<u8>, location: Location) -> Result<(), ReadError> {
        if self.conversation.is_none() {
            let head = Head {
                title: self.title.clone(),
                ..Default::default()
            };
            self.open(head, location);
        }
        let mut notes = Notes::new();
        let dialect = &mut self.dialect;
        let read = json::parse_bytes(bytes, &mut notes, |text, notes| {
            let record = Fields::parse(text)?;
            let read: Vec<&str> = D::FIELDS.iter().copied().chain([ANNEAL_KEY]).collect();
            notes.note_unread_fields(&record, &read, "messages");
            Ok((
                dialect.parse_messages(&record, notes)?,
                MessageExtra::of(&record)?,
            ))
        });
        let (natives, extra) = match read {
            Ok(read) => read,
            Err(Unreadable(what)) => return self.refuse(location, what),
        };
        if extra.is_none() && self.take_prompt(&natives) {
            self.emit_head()?;
            return self.out.add_notes(location, notes);
        }
        self.emit_head()?;
        if self.out.add_record(location, natives, extra, notes)? {
            self.count_message()
        } else {
            Ok(())
        }
    }

    /// Takes the first message as the system prompt, if it is a system message with a valid prompt
    /// and the head has no prompt yet. Returns whether it did.
    fn take_prompt(&mut self, natives: &[Message]) -> bool {
        let Some(OpenConversation {
            head: Some(head),
            messages: 0,
            ..
        }) = &mut self.conversation
        else {
            return false;
        };
        let [
            Message {
                role: Role::System,
                parts,
                ..
            },
        ] = natives
        else {
            return false;
        };
        let prompt = plain_text(parts);
        let is_prompt = head.system_prompt.is_empty()
            && storage_limits::is_valid_prompt(&prompt)
            && !prompt.is_empty();
        if is_prompt {
            head.system_prompt = prompt;
        }
        is_prompt
    }

    /// Emits the head of the conversation and the marks before its first message.
    fn emit_head(&mut self) -> Result<(), ReadError> {
        let Some(conversation) = &mut self.conversation else {
            return Ok(());
        };
        let Some(head) = conversation.head.take() else {
            return Ok(());
        };
        let (location, notes, head_error) = (
            conversation.location,
            std::mem::take(&mut conversation.notes),
            conversation.head_error.take(),
        );
        self.out.emit_conversation(location, head)?;
        self.out.add_notes(location, notes)?;
        if let Some(what) = head_error {
            self.out.refuse(location, what)?;
        }
        self.emit_marks()
    }

    /// Counts one more message, whether it was kept or refused, and emits the marks after it.
    fn count_message(&mut self) -> Result<(), ReadError> {
        if let Some(conversation) = &mut self.conversation {
            conversation.messages += 1;
        }
        self.emit_head()?;
        self.emit_marks()
    }

    /// Emits the summaries and separators whose position has been reached.
    fn emit_marks(&mut self) -> Result<(), ReadError> {
        let Some(conversation) = &mut self.conversation else {
            return Ok(());
        };
        while let Some(mark) = conversation
            .marks
            .pop_front_if(|mark| mark.after <= conversation.messages)
        {
            match mark.summary {
                Some(summary) => self.out.emit_summary(summary.into())?,
                None => self.out.emit_separator()?,
            }
        }
        Ok(())
    }

    /// Ends the conversation, if one is open.
    fn close(&mut self) -> Result<(), ReadError> {
        self.emit_head()?;
        self.conversation = None;
        self.out.end_conversation()
    }
}

/// Skips consecutive commas. Returns whether there were any.
fn skip_commas<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<bool, ReadError> {
    let mut found_some = false;
    while cursor.consume_if(b',')? {
        found_some = true;
    }
    Ok(found_some)
}

/// Whether the next object has a list under one of these names. The cursor stays where it is.
fn has_list<R: Read + Seek>(cursor: &mut Cursor<R>, lists: &[&str]) -> Result<bool, ReadError> {
    let start = cursor.position();
    // Only the list is needed, so long fields may be left out.
    let outline = read_outline(cursor, lists, LABEL_BYTES)?;
    cursor.seek_to(start)?;
    Ok(outline.list.is_some())
}
