//! Lists of messages read one message at a time.

use std::{
    collections::VecDeque,
    io::{Read, Seek},
};

use anneal_core::message::{Message, Role, plain_text};

use super::{
    About, Dialect,
    about::{self, MARKS, Mark},
    elements_are, outline,
};
use crate::{
    Fate, Head, Place, ReadError, ReadOptions,
    cursor::{Cursor, ELEMENT_BYTES, Layout, Position, Scanned},
    extra::{Extra, KEY},
    fit,
    json::{self, Bad, Fields, Notes, named},
    out::Out,
};

/// Bytes of a field beside the list of messages.
const FIELD_BYTES: usize = 16 * 1024 * 1024;
/// Why a comma with nothing before it is refused.
const NOTHING: &str = "nothing stands before a comma";
/// Bytes of a field beside the list that becomes a label of the conversation.
const LABEL_BYTES: usize = 256;

/// Reads a file of this dialect.
pub(crate) fn read<D: Dialect, R: Read + Seek>(
    mut cursor: Cursor<R>,
    dialect: D,
    options: &ReadOptions,
    out: Out,
) -> Result<(), ReadError> {
    let mut talks = Talks { out, dialect, title: options.name.clone(), open: None };
    match cursor.layout()? {
        Layout::Whole => talks.whole(&mut cursor)?,
        Layout::Lines => talks.lines(&mut cursor)?,
    }
    talks.close()?;
    talks.out.end()
}

struct Talks<'a, D> {
    out: Out<'a>,
    dialect: D,
    title: String,
    open: Option<Open>,
}

/// A conversation that messages are read of.
struct Open {
    /// Until its first message is known, which may be the system prompt.
    head: Option<Head>,
    place: Place,
    /// What is to be said of the head.
    notes: Notes,
    /// Why the head could not be read.
    refused: Option<String>,
    messages: u64,
    marks: VecDeque<Mark>,
}

impl<D: Dialect> Talks<'_, D> {
    /// A file of one value, or of several that go over lines: each a conversation, a list of conversations or a message.
    fn whole<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<(), ReadError> {
        for number in 1.. {
            let Some(first) = cursor.peek_after_blanks()? else { break };
            let place = Place::Line(cursor.place().line);
            let title = if number == 1 { self.title.clone() } else { format!("{} {number}", self.title) };
            let is_whole = match first {
                b'[' if !elements_are(cursor, D::marks_message)? => self.conversations(cursor, &title)?,
                // a message follows one: they are of one conversation
                b'{' if self.open.is_some() && !has_list(cursor, D::LISTS)? => self.next(cursor, place)?,
                b'[' | b'{' => self.conversation(cursor, place, title)?,
                _ => {
                    self.conversation(cursor, place, title)?;
                    false
                }
            };
            let passed = if is_whole { 0 } else { cursor.pass_to_next_value()? };
            if passed > 1 {
                self.out.refuse(place, format!("{passed} lines from here to the next value"))?;
            }
        }
        Ok(())
    }

    /// A list of conversations. Whether it ends.
    fn conversations<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>, title: &str) -> Result<bool, ReadError> {
        cursor.pass(b'[')?;
        for number in 1.. {
            if cursor.pass(b']')? {
                return Ok(true);
            }
            let next = cursor.peek_after_blanks()?;
            let place = Place::Entry { line: cursor.place().line, entry: number };
            match next {
                None => {
                    self.out.refuse(place, "the file ends in the middle of it")?;
                    break;
                }
                Some(b',') => {
                    pass_commas(cursor)?;
                    self.out.refuse(place, NOTHING)?;
                    continue;
                }
                Some(_) => {}
            }
            if !self.conversation(cursor, place, format!("{title} {number}"))? {
                break;
            }
            self.close()?;
            cursor.pass(b',')?;
        }
        Ok(false)
    }

    /// A file of lines: messages of one conversation, or conversations.
    fn lines<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<(), ReadError> {
        while cursor.peek_after_blanks()?.is_some() {
            let start = cursor.place();
            let line = cursor.line(0)?;
            let next = cursor.place();
            if line == Scanned::Nothing {
                break;
            }
            cursor.go(start)?;
            cursor.end_at(next.offset);
            self.line(cursor, start)?;
            cursor.end_at(u64::MAX);
            cursor.go(next)?;
        }
        Ok(())
    }

    fn line<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>, start: Position) -> Result<(), ReadError> {
        let place = Place::Line(start.line);
        if cursor.peek()? == Some(b'{') {
            let found = outline(cursor, D::LISTS, LABEL_BYTES)?;
            let torn = found.torn && found.list.is_none();
            cursor.go(start)?;
            if torn {
                return self.out.refuse(place, "it is no JSON, or breaks off");
            }
            if found.list.is_none() {
                return match cursor.line(ELEMENT_BYTES)? {
                    Scanned::Bytes(bytes) => self.element(bytes, place),
                    _ => self.out.refuse(place, "it is longer than any message"),
                };
            }
        }
        let title = format!("{} {}", self.title, start.line);
        let is_whole = self.conversation(cursor, place, title)?;
        self.close()?;
        cursor.pass(b',')?;
        if is_whole && cursor.peek_after_blanks()?.is_some() {
            return self.out.refuse(place, "what stands behind the first value of the line");
        }
        Ok(())
    }

    /// A list of messages, or an object around one, or a single message, which others may follow. Whether it ends.
    fn conversation<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        place: Place,
        title: String,
    ) -> Result<bool, ReadError> {
        self.close()?;
        let start = cursor.place();
        let mut is_whole = true;
        match cursor.peek_after_blanks()? {
            Some(b'[') => {
                self.open(Head { title, ..Default::default() }, place);
                is_whole = self.elements(cursor)?;
            }
            Some(b'{') => {
                let found = outline(cursor, D::LISTS, FIELD_BYTES)?;
                let after = cursor.place();
                is_whole = !found.torn;
                match found.list {
                    Some(list) => {
                        self.head(&found.fields(), place, title);
                        cursor.go(list)?;
                        let whole = self.elements(cursor)?;
                        cursor.go(after)?;
                        if found.torn && whole {
                            self.begin()?;
                            self.out.refuse(place, "the file ends in the middle of it")?;
                        }
                    }
                    None if found.fields().names().any(D::marks_message) => {
                        self.open(Head { title, ..Default::default() }, place);
                        cursor.go(start)?;
                        return self.next(cursor, place);
                    }
                    None => self.out.refuse(place, format!("it is no message, and has no list {}", D::LISTS[0]))?,
                }
            }
            None => {}
            Some(_) => {
                is_whole = matches!(cursor.skip()?, Scanned::Bytes(_));
                self.out.refuse(place, "it is neither a list of messages nor an object that holds one")?;
            }
        }
        self.close()?;
        Ok(is_whole)
    }

    fn open(&mut self, head: Head, place: Place) {
        self.dialect.begin();
        let (notes, marks) = (Notes::new(), VecDeque::new());
        self.open = Some(Open { head: Some(head), place, notes, refused: None, messages: 0, marks });
    }

    /// Opens a conversation by what stands beside its list.
    fn head(&mut self, fields: &Fields, place: Place, title: String) {
        let mut notes = Notes::new();
        let read = self.head_of(fields, title.clone(), &mut notes).and_then(|head| Ok((head, about::marks(fields)?)));
        let (head, marks, refused) = match read {
            Ok((head, marks)) => (head, marks, None),
            Err(Bad(what)) => (Head { title, ..Default::default() }, VecDeque::new(), Some(what)),
        };
        self.dialect.begin();
        self.open = Some(Open { head: Some(head), place, notes, refused, messages: 0, marks });
    }

    fn head_of(&self, fields: &Fields, title: String, notes: &mut Notes) -> Result<Head, Bad> {
        let system_prompt = self.dialect.system(fields, notes)?;
        if let Some(about) = About::of(fields)? {
            let head = about.head();
            let title = if head.title.is_empty() { title } else { head.title };
            return Ok(Head { title, system_prompt, ..head });
        }
        let mut head = Head { title, system_prompt, ..Default::default() };
        let mut aside = Vec::new();
        for key in fields.names().filter(|key| !matches!(*key, KEY | MARKS | "system")) {
            let Some(raw) = fields.raw(key) else { continue };
            match (key, json::is_text(raw)) {
                ("title" | "name", true) => head.title = json::text(raw)?,
                ("agent_id", true) => head.agent_id = json::text(raw)?,
                _ if raw.len() <= LABEL_BYTES && !raw.starts_with(['{', '[']) => {
                    head.metadata.insert(format!("{}.{key}", D::FORMAT.name()), json::label(raw)?);
                }
                _ => aside.push(named(key)),
            }
        }
        if !aside.is_empty() {
            notes.push((Fate::SetAside, format!("beside the messages: {}", aside.join(", "))));
        }
        Ok(head)
    }

    /// The messages of the list that comes next. Whether the list ends.
    fn elements<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<bool, ReadError> {
        cursor.pass(b'[')?;
        for number in 1.. {
            if cursor.pass(b']')? {
                return Ok(true);
            }
            let place = Place::Entry { line: cursor.place().line, entry: number };
            if pass_commas(cursor)? {
                self.refuse(place, NOTHING)?;
                continue;
            }
            if !self.next(cursor, place)? {
                break;
            }
            cursor.pass(b',')?;
        }
        Ok(false)
    }

    /// The message that comes next in the file. Whether it was whole.
    fn next<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>, place: Place) -> Result<bool, ReadError> {
        let start = cursor.place();
        match cursor.value(ELEMENT_BYTES)? {
            Scanned::Bytes(bytes) => self.element(bytes, place)?,
            Scanned::Long => self.refuse(place, "it is longer than any message")?,
            Scanned::Nothing => {
                self.refuse(place, "no message begins here; what follows in the list is left out")?;
                return Ok(false);
            }
            Scanned::Torn => {
                let bytes = cursor.place().offset - start.offset;
                self.refuse(place, format!("it breaks off, or is no JSON: {bytes} bytes up to the end"))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn refuse(&mut self, place: Place, what: impl Into<String>) -> Result<(), ReadError> {
        self.begin()?;
        self.out.refuse(place, what)?;
        self.count()
    }

    /// A message by its bytes.
    fn element(&mut self, bytes: Vec<u8>, place: Place) -> Result<(), ReadError> {
        if self.open.is_none() {
            let head = Head { title: self.title.clone(), ..Default::default() };
            self.open(head, place);
        }
        let mut notes = Notes::new();
        let dialect = &mut self.dialect;
        let read = json::read(bytes, &mut notes, |text, notes| {
            let record = Fields::parse(text)?;
            let read: Vec<&str> = D::FIELDS.iter().copied().chain([KEY]).collect();
            notes.unread(&record, &read, "messages");
            Ok((dialect.message(&record, notes)?, Extra::of(&record)?))
        });
        let (natives, extra) = match read {
            Ok(read) => read,
            Err(Bad(what)) => return self.refuse(place, what),
        };
        if extra.is_none() && self.takes_prompt(&natives) {
            self.begin()?;
            return self.out.notes(place, notes);
        }
        self.begin()?;
        if self.out.record(place, natives, extra, notes)? { self.count() } else { Ok(()) }
    }

    /// Takes the first message as the system prompt, if it is one.
    fn takes_prompt(&mut self, natives: &[Message]) -> bool {
        let Some(Open { head: Some(head), messages: 0, .. }) = &mut self.open else { return false };
        let [Message { role: Role::System, parts, .. }] = natives else { return false };
        let prompt = plain_text(parts);
        let takes = head.system_prompt.is_empty() && fit::is_prompt(&prompt) && !prompt.is_empty();
        if takes {
            head.system_prompt = prompt;
        }
        takes
    }

    /// Tells the conversation's head, and what stands before its first message.
    fn begin(&mut self) -> Result<(), ReadError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(head) = open.head.take() else { return Ok(()) };
        let (place, notes, refused) = (open.place, std::mem::take(&mut open.notes), open.refused.take());
        self.out.conversation(place, head)?;
        self.out.notes(place, notes)?;
        if let Some(what) = refused {
            self.out.refuse(place, what)?;
        }
        self.marks()
    }

    /// One more message was read, whatever became of it.
    fn count(&mut self) -> Result<(), ReadError> {
        if let Some(open) = &mut self.open {
            open.messages += 1;
        }
        self.begin()?;
        self.marks()
    }

    fn marks(&mut self) -> Result<(), ReadError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        while let Some(mark) = open.marks.pop_front_if(|mark| mark.after <= open.messages) {
            match mark.summary {
                Some(summary) => self.out.summary(summary.into())?,
                None => self.out.separator()?,
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), ReadError> {
        self.begin()?;
        self.open = None;
        self.out.leave()
    }
}

/// Passes over commas that come next, with nothing between them. Whether there were some.
fn pass_commas<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<bool, ReadError> {
    let mut were_some = false;
    while cursor.pass(b',')? {
        were_some = true;
    }
    Ok(were_some)
}

/// Whether the object that comes next holds a list of one of these names. The cursor stays where it is.
fn has_list<R: Read + Seek>(cursor: &mut Cursor<R>, lists: &[&str]) -> Result<bool, ReadError> {
    let start = cursor.place();
    let found = outline(cursor, lists, LABEL_BYTES)?;
    cursor.go(start)?;
    Ok(found.list.is_some())
}
