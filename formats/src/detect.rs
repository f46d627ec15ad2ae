//! What kind of file it is.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use crate::{
    Format, ReadError,
    cursor::{Cursor, Layout, Scanned},
    json::{self, Fields, Notes},
    talks::{About, outline},
};

/// What a SQLite database begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// Messages that are looked at, at most; most files tell earlier.
const LOOKS: usize = 200;
/// Bytes of a field or a message that is looked into.
const LOOK_BYTES: usize = 1024 * 1024;
/// Names under which an object holds messages.
const LISTS: [&str; 4] = ["conversations", "messages", "history", "traj"];

/// The format of a file, by its content; its name's ending decides only where the content leaves it open.
pub fn detect(path: &Path) -> Result<Format, ReadError> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(SQLITE.len() as u64).read_to_end(&mut magic)?;
    if magic == SQLITE {
        return Ok(Format::ZeroClaw);
    }
    file.rewind()?;
    let mut look = Look { guess: None, looks: 0 };
    look.file(&mut Cursor::new(file)?)?;
    match look.guess {
        Some(Guess::Surely(format) | Guess::Perhaps(format)) => Ok(format),
        None => by_ending(path).ok_or(ReadError::Unknown),
    }
}

fn by_ending(path: &Path) -> Option<Format> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "traj" => Some(Format::OpenAi),
        "db" | "sqlite" | "sqlite3" => Some(Format::ZeroClaw),
        _ => None,
    }
}

/// What the file seems to be.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Surely(Format),
    Perhaps(Format),
}

struct Look {
    guess: Option<Guess>,
    looks: usize,
}

impl Look {
    const fn goes_on(&self) -> bool {
        !matches!(self.guess, Some(Guess::Surely(_))) && self.looks < LOOKS
    }

    fn take(&mut self, guess: Option<Guess>) {
        self.looks += 1;
        match (guess, self.guess) {
            (Some(Guess::Surely(_)), _) | (Some(_), None) => self.guess = guess,
            _ => {}
        }
    }

    fn file<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let layout = cursor.layout()?;
        while self.goes_on() && cursor.peek_after_blanks()?.is_some() {
            if layout == Layout::Whole {
                return self.value(cursor);
            }
            let start = cursor.place();
            cursor.line(0)?;
            let next = cursor.place();
            cursor.go(start)?;
            cursor.end_at(next.offset);
            self.value(cursor)?;
            cursor.end_at(u64::MAX);
            cursor.go(next)?;
        }
        Ok(())
    }

    /// An object, or the objects of a list, or of a list within a list.
    fn value<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let mut lists = 0;
        while cursor.pass(b'[')? {
            lists += 1;
        }
        loop {
            if cursor.peek_after_blanks()? == Some(b'{') {
                self.object(cursor)?;
            } else if !matches!(cursor.skip()?, Scanned::Bytes(_)) {
                return Ok(());
            }
            if lists == 0 || !self.goes_on() || !cursor.pass(b',')? {
                return Ok(());
            }
        }
    }

    fn object<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let found = outline(cursor, &LISTS, LOOK_BYTES)?;
        let after = cursor.place();
        let fields = found.fields();
        if let Ok(Some(format)) = About::of(&fields).map(|about| about.and_then(|about| about.written())) {
            self.guess = Some(Guess::Surely(format));
            return Ok(());
        }
        let Some(list) = found.list else {
            self.take(of_record(&fields));
            return Ok(());
        };
        if fields.has("system") {
            self.take(Some(Guess::Surely(Format::Anthropic)));
            return Ok(());
        }
        cursor.go(list)?;
        cursor.pass(b'[')?;
        while self.goes_on() {
            let Scanned::Bytes(bytes) = cursor.value(LOOK_BYTES)? else { break };
            let guess =
                json::read(bytes, &mut Notes::new(), |text, _| Fields::parse(text).map(|said| of_record(&said)));
            self.take(guess.unwrap_or_default());
            cursor.pass(b',')?;
        }
        cursor.go(after)
    }
}

/// What a line or a message seems to be of.
fn of_record(record: &Fields) -> Option<Guess> {
    let kind = record.text("type").ok().flatten().unwrap_or_default();
    let has = |name: &str| record.0.contains_key(name);
    if has("role") {
        return of_message(record);
    }
    match kind.as_str() {
        "session" | "compaction" | "model_change" | "custom_message" | "branch_summary" => {
            Some(Guess::Surely(Format::Pi))
        }
        "message" if has("message") => Some(Guess::Surely(Format::Pi)),
        "user" | "assistant" if has("content") => Some(Guess::Surely(Format::Claw0)),
        "tool_use" | "tool_result" if has("tool_use_id") => Some(Guess::Surely(Format::Claw0)),
        _ if has("from") && has("value") => Some(Guess::Surely(Format::ShareGpt)),
        _ => None,
    }
}

/// A chat message: OpenAI's unless its content says otherwise.
fn of_message(message: &Fields) -> Option<Guess> {
    let role = message.text("role").ok().flatten()?;
    let own = ["tool_calls", "function_call", "tool_call_id", "tool_call_ids"];
    if matches!(role.as_str(), "tool" | "function" | "developer" | "system") || own.iter().any(|name| message.has(name))
    {
        return Some(Guess::Surely(Format::OpenAi));
    }
    let blocks = message.list("content").unwrap_or_default();
    let kinds = blocks.into_iter().filter_map(|block| Fields::parse(block).ok()?.text("type").ok()?);
    let surely = kinds.filter_map(|kind| match kind.as_str() {
        "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "image" | "document" => Some(Format::Anthropic),
        "image_url" | "input_audio" | "file" | "refusal" => Some(Format::OpenAi),
        _ => None,
    });
    Some(surely.map(Guess::Surely).next().unwrap_or(Guess::Perhaps(Format::OpenAi)))
}
