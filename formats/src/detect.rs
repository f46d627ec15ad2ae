//! Detects the format of a file.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use crate::{
    Format, ReadError,
    conversation_extra::ConversationExtra,
    cursor::{Cursor, Layout, Scanned},
    json::{self, Fields, Notes},
    message_list::read_outline,
};

/// The first bytes of a SQLite database.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// Most messages examined. Most files are decided earlier.
const MAX_SAMPLES: usize = 200;
/// Largest field or message examined, in bytes.
const SAMPLE_BYTES: usize = 1024 * 1024;
/// The names of fields that hold a list of messages, in all formats.
const LISTS: [&str; 4] = ["conversations", "messages", "history", "traj"];

/// The format of a file, by its content. The file extension decides only if the content does not.
pub fn detect(path: &Path) -> Result<Format, ReadError> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref()
        .take(SQLITE.len() as u64)
        .read_to_end(&mut magic)?;
    if magic == SQLITE {
        return Ok(Format::ZeroClaw);
    }
    file.rewind()?;
    let mut detector = Detector {
        guess: None,
        samples: 0,
        json_lines: 0,
        text_lines: 0,
    };
    detector.read_file(&mut Cursor::new(file)?)?;
    match detector.guess {
        _ if detector.is_mostly_text() => Err(ReadError::Unknown),
        Some(Guess::Certain(format) | Guess::Likely(format)) => Ok(format),
        None => format_of_extension(path).ok_or(ReadError::Unknown),
    }
}

fn format_of_extension(path: &Path) -> Option<Format> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "traj" => Some(Format::OpenAi),
        "db" | "sqlite" | "sqlite3" => Some(Format::ZeroClaw),
        _ => None,
    }
}

/// A possible format of the file. A certain one ends the detection.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Certain(Format),
    Likely(Format),
}

struct Detector {
    guess: Option<Guess>,
    samples: usize,
    /// Examined lines that begin with a bracket, as a JSON object or list does.
    json_lines: usize,
    /// Examined lines that begin with anything else.
    text_lines: usize,
}

impl Detector {
    /// Whether most examined lines are not JSON: then the file is a text, such as a page of
    /// documentation, and the JSON in it is an example.
    const fn is_mostly_text(&self) -> bool {
        self.text_lines > self.json_lines
    }

    /// Whether more messages are to be examined.
    const fn needs_more_samples(&self) -> bool {
        !matches!(self.guess, Some(Guess::Certain(_))) && self.samples < MAX_SAMPLES
    }

    /// Whether more lines are to be examined. A guess from a few JSON lines after text is not
    /// trusted.
    const fn needs_more_lines(&self) -> bool {
        self.needs_more_samples() || self.is_mostly_text() && self.samples < MAX_SAMPLES
    }

    fn record_guess(&mut self, guess: Option<Guess>) {
        self.samples += 1;
        match (guess, self.guess) {
            (Some(Guess::Certain(_)), _) | (Some(_), None) => self.guess = guess,
            _ => {}
        }
    }

    fn read_file<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let layout = cursor.detect_layout()?;
        while self.needs_more_lines()
            && let Some(first) = cursor.peek_non_blank()?
        {
            if layout == Layout::SingleValue {
                return self.read_value(cursor);
            }
            match first {
                b'{' | b'[' => self.json_lines += 1,
                _ => self.text_lines += 1,
            }
            let start = cursor.position();
            cursor.skip_line()?;
            let next = cursor.position();
            cursor.seek_to(start)?;
            cursor.end_at(next.offset);
            self.read_value(cursor)?;
            cursor.end_at(u64::MAX);
            cursor.seek_to(next)?;
        }
        Ok(())
    }

    /// Examines an object, or the objects of a list. If lists are nested, examines the objects of
    /// the first innermost one.
    fn read_value<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let mut lists = 0;
        while cursor.consume_if(b'[')? {
            lists += 1;
        }
        loop {
            if cursor.peek_non_blank()? == Some(b'{') {
                self.read_object(cursor)?;
            } else if !matches!(cursor.skip_value()?, Scanned::Bytes(_)) {
                return Ok(());
            }
            if lists == 0 || !self.needs_more_samples() || !cursor.consume_if(b',')? {
                return Ok(());
            }
        }
    }

    fn read_object<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> io::Result<()> {
        let outline = read_outline(cursor, &LISTS, SAMPLE_BYTES)?;
        let after = cursor.position();
        let fields = outline.fields();
        if let Ok(Some(format)) =
            ConversationExtra::of(&fields).map(|extra| extra.and_then(|extra| extra.format()))
        {
            self.guess = Some(Guess::Certain(format));
            return Ok(());
        }
        let Some(list) = outline.list else {
            self.record_guess(format_of_record(&fields));
            return Ok(());
        };
        if fields.has("system") {
            self.record_guess(Some(Guess::Likely(Format::Anthropic)));
        }
        cursor.seek_to(list)?;
        cursor.consume_if(b'[')?;
        while self.needs_more_samples() {
            let Scanned::Bytes(bytes) = cursor.read_value(SAMPLE_BYTES)? else {
                break;
            };
            let guess = json::parse_bytes(bytes, &mut Notes::new(), |text, _| {
                Fields::parse(text).map(|record| format_of_record(&record))
            });
            self.record_guess(guess.unwrap_or_default());
            cursor.consume_if(b',')?;
        }
        cursor.seek_to(after)
    }
}

/// The format of a line or message, by its type and its field names.
fn format_of_record(record: &Fields) -> Option<Guess> {
    let kind = record.text("type").ok().flatten().unwrap_or_default();
    // Unlike `has`, a field counts even if it is null: the name alone tells the format.
    let is_present = |name: &str| record.0.contains_key(name);
    if is_present("role") {
        return format_of_message(record);
    }
    match kind.as_str() {
        "session" | "compaction" | "model_change" | "custom_message" | "branch_summary" => {
            Some(Guess::Certain(Format::Pi))
        }
        "message" if is_present("message") => Some(Guess::Certain(Format::Pi)),
        "user" | "assistant" if is_present("content") => Some(Guess::Certain(Format::Claw0)),
        "tool_use" | "tool_result" if is_present("tool_use_id") => {
            Some(Guess::Certain(Format::Claw0))
        }
        _ if is_present("from") && is_present("value") => Some(Guess::Certain(Format::ShareGpt)),
        _ => None,
    }
}

/// The format of a chat message: OpenAI, unless its content blocks belong to another format.
fn format_of_message(message: &Fields) -> Option<Guess> {
    let role = message.text("role").ok().flatten()?;
    let openai_fields = [
        "tool_calls",
        "function_call",
        "tool_call_id",
        "tool_call_ids",
    ];
    if matches!(role.as_str(), "tool" | "function" | "developer" | "system")
        || openai_fields.iter().any(|name| message.has(name))
    {
        return Some(Guess::Certain(Format::OpenAi));
    }
    let blocks = message.list("content").unwrap_or_default();
    let kinds = blocks
        .into_iter()
        .filter_map(|block| Fields::parse(block).ok()?.text("type").ok()?);
    let certain = kinds.filter_map(|kind| match kind.as_str() {
        "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "image" | "document" => {
            Some(Format::Anthropic)
        }
        "image_url" | "input_audio" | "file" | "refusal" => Some(Format::OpenAi),
        _ => None,
    });
    Some(
        certain
            .map(Guess::Certain)
            .next()
            .unwrap_or(Guess::Likely(Format::OpenAi)),
    )
}
