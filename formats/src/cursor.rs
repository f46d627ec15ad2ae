//! A file by its bytes: lines and JSON values, found without holding more than one of them.

use std::io::{self, BufRead, BufReader, Read, Seek};

use anneal_core::limits::{MESSAGE_BYTES, REQUEST_BYTES};

use crate::brackets::Brackets;

/// Bytes of one line or value, escapes counted as what they stand for: the largest message, and what is said around it.
pub(crate) const ELEMENT_BYTES: usize = MESSAGE_BYTES + 2 * REQUEST_BYTES;
/// Lines after a first one that leaves a bracket open which are looked at.
const OPEN_LINES: usize = 100;
/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// The line that it is on, from 1 on.
    pub(crate) line: u64,
}

/// What was found where a line or a value was looked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// Its bytes; empty when it was only passed over.
    Bytes(Vec<u8>),
    /// It is longer than it may be, and was passed over.
    Long,
    /// The file ends, or the list or object around it, before it begins.
    Nothing,
    /// The file ends in the middle of it.
    Torn,
}

/// How the file is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One JSON value.
    Whole,
    /// A JSON value on each line.
    Lines,
}

/// Where the reading of a file is.
pub(crate) struct Cursor<R> {
    input: BufReader<R>,
    at: Position,
    end: u64,
}

impl<R: Read + Seek> Cursor<R> {
    /// At the file's beginning, after a byte order mark.
    pub(crate) fn new(file: R) -> io::Result<Self> {
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut cursor = Self { input, at: Position { offset: 0, line: 1 }, end: u64::MAX };
        if cursor.input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            cursor.input.consume(3);
            cursor.at.offset = 3;
        }
        Ok(cursor)
    }

    /// Where it is.
    pub(crate) const fn place(&self) -> Position {
        self.at
    }

    /// Goes to a place that was seen before.
    pub(crate) fn go(&mut self, place: Position) -> io::Result<()> {
        let by = i64::try_from(place.offset).unwrap_or(i64::MAX) - i64::try_from(self.at.offset).unwrap_or(i64::MAX);
        self.input.seek_relative(by)?;
        self.at = place;
        Ok(())
    }

    /// Reads nothing from this offset on.
    pub(crate) const fn end_at(&mut self, offset: u64) {
        self.end = offset;
    }

    /// Bytes at hand before the end.
    fn chunk(&mut self) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(self.at.offset)).unwrap_or(usize::MAX);
        loop {
            match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        let buffer = self.input.buffer();
        Ok(&buffer[..buffer.len().min(left)])
    }

    fn consume(&mut self, bytes: usize) {
        let lines = self.input.buffer()[..bytes].split(|byte| *byte == b'\n').count() - 1;
        self.input.consume(bytes);
        self.at.offset += bytes as u64;
        self.at.line += lines as u64;
    }

    /// The next byte, still unread.
    pub(crate) fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.chunk()?.first().copied())
    }

    /// The next byte that is no blank, still unread.
    pub(crate) fn peek_after_blanks(&mut self) -> io::Result<Option<u8>> {
        loop {
            let chunk = self.chunk()?;
            let blanks = chunk.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let (next, whole) = (chunk.get(blanks).copied(), chunk.is_empty());
            self.consume(blanks);
            if next.is_some() || whole {
                return Ok(next);
            }
        }
    }

    /// Passes over the byte, if it comes next after blanks.
    pub(crate) fn pass(&mut self, byte: u8) -> io::Result<bool> {
        let here = self.peek_after_blanks()? == Some(byte);
        if here {
            self.consume(1);
        }
        Ok(here)
    }

    /// The rest of this line without its end, and passes over it; `most` bytes are kept, escapes counted as what they are.
    pub(crate) fn line(&mut self, most: usize) -> io::Result<Scanned> {
        let mut kept = Kept::new(most);
        if self.peek()?.is_none() {
            return Ok(Scanned::Nothing);
        }
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(kept.scanned());
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let bytes = end.unwrap_or(chunk.len());
            kept.take(&chunk[..bytes]);
            self.consume(end.map_or(bytes, |end| end + 1));
            if end.is_some() {
                return Ok(kept.scanned());
            }
        }
    }

    /// The next JSON value by its brackets and quotes alone, after blanks; `most` bytes are kept.
    pub(crate) fn value(&mut self, most: usize) -> io::Result<Scanned> {
        if matches!(self.peek_after_blanks()?, None | Some(b']' | b'}' | b',' | b':')) {
            return Ok(Scanned::Nothing);
        }
        let mut kept = Kept::new(most);
        let mut brackets = Brackets::default();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(if brackets.ended() { kept.scanned() } else { Scanned::Torn });
            }
            let (bytes, whole) = brackets.follow(chunk);
            kept.take(&chunk[..bytes]);
            self.consume(bytes);
            if whole {
                return Ok(kept.scanned());
            }
        }
    }

    /// Passes over the next JSON value.
    pub(crate) fn skip(&mut self) -> io::Result<Scanned> {
        Ok(match self.value(0)? {
            Scanned::Long => Scanned::Bytes(Vec::new()),
            other => other,
        })
    }

    /// How the file is laid out; the cursor is where it was. A first line that breaks off within a text is a torn one,
    /// not the beginning of a value that goes on; nor is one that objects on lines of their own cannot follow.
    pub(crate) fn layout(&mut self) -> io::Result<Layout> {
        self.peek_after_blanks()?;
        let start = self.place();
        let mut brackets = Brackets::default();
        let layout = loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                break Layout::Whole;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n').unwrap_or(chunk.len());
            let (followed, whole) = brackets.follow(&chunk[..end]);
            let line_ends = end < chunk.len();
            self.consume(if whole { followed } else { end });
            if whole {
                break self.after_first()?;
            }
            if line_ends {
                break if brackets.ended() || brackets.within_text() {
                    self.after_first()?
                } else {
                    self.after_open(brackets.within_list())?
                };
            }
        };
        self.go(start)?;
        Ok(layout)
    }

    /// The same after a first line that leaves a bracket open. Within one value a comma or a bracket follows an object;
    /// where another one does, each line is for itself. A few lines tell: one that is torn has others after it.
    fn after_open(&mut self, within_list: bool) -> io::Result<Layout> {
        for index in 0..OPEN_LINES {
            let alone = self.peek_after_blanks()? == Some(b'{') && self.pass_object_on_its_line()?;
            match self.peek_after_blanks()? {
                Some(b'{' | b'[') if alone => return Ok(Layout::Lines),
                None if alone && index == 0 && !within_list => return Ok(Layout::Lines),
                Some(b',' | b']' | b'}') if alone => return Ok(Layout::Whole),
                None => return Ok(Layout::Whole),
                Some(_) => drop(self.line(0)?),
            }
        }
        Ok(Layout::Whole)
    }

    /// Passes over the object that comes next. Whether it ends on the line that it begins on; otherwise nothing is passed.
    fn pass_object_on_its_line(&mut self) -> io::Result<bool> {
        let start = self.place();
        self.line(0)?;
        let next = self.place();
        self.go(start)?;
        self.end_at(next.offset);
        let ends = matches!(self.skip()?, Scanned::Bytes(_));
        self.end_at(u64::MAX);
        if !ends {
            self.go(start)?;
        }
        Ok(ends)
    }

    /// Goes on after something that is no JSON: to the next line that begins with an object or a list. Says how many lines
    /// it passes, the rest of this one included.
    pub(crate) fn pass_to_next_value(&mut self) -> io::Result<u64> {
        let mut lines = 0;
        while self.line(0)? != Scanned::Nothing {
            lines += 1;
            if matches!(self.peek()?, None | Some(b'[' | b'{')) {
                break;
            }
        }
        Ok(lines)
    }

    /// Whether more follows what was the first line.
    fn after_first(&mut self) -> io::Result<Layout> {
        Ok(if self.peek_after_blanks()?.is_some() { Layout::Lines } else { Layout::Whole })
    }
}

/// Bytes that are kept as long as they are not too many. An escape counts as one byte.
struct Kept {
    bytes: Vec<u8>,
    most: usize,
    weight: usize,
    /// Bytes of an escape that are still to come.
    escape: usize,
    long: bool,
}

impl Kept {
    const fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, weight: 0, escape: 0, long: false }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.long {
            return;
        }
        for byte in bytes {
            match (self.escape, byte) {
                (0, b'\\') => (self.escape, self.weight) = (1, self.weight + 1),
                (0, _) => self.weight += 1,
                // the first byte after the backslash: four digits follow a `u`
                (1, b'u') => self.escape = 5,
                // the last digit is at 2
                (1 | 2, _) => self.escape = 0,
                (_, _) => self.escape -= 1,
            }
        }
        self.long = self.weight > self.most;
        if self.long {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn scanned(self) -> Scanned {
        if self.long { Scanned::Long } else { Scanned::Bytes(self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(text: &str) -> Cursor<io::Cursor<&[u8]>> {
        Cursor::new(io::Cursor::new(text.as_bytes())).expect("reads")
    }

    fn bytes(text: &str) -> Scanned {
        Scanned::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn values_end_where_their_brackets_and_quotes_do() {
        let mut cursor = cursor("\u{feff} {\"a\":\"}\\\"]\"} [1,[2]]\n\"x\\\\\" 12,");
        assert_eq!(cursor.value(99).expect("reads"), bytes("{\"a\":\"}\\\"]\"}"));
        assert_eq!(cursor.value(99).expect("reads"), bytes("[1,[2]]"));
        assert_eq!(cursor.value(99).expect("reads"), bytes("\"x\\\\\""));
        assert_eq!((cursor.value(99).expect("reads"), cursor.place().line), (bytes("12"), 2));
        assert_eq!(cursor.value(99).expect("reads"), Scanned::Nothing);
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_an_escape_counts_once() {
        let mut long = cursor("[\"0123456789\"]\n[1]\n");
        assert_eq!(long.line(5).expect("reads"), Scanned::Long);
        assert_eq!(long.line(5).expect("reads"), bytes("[1]"));
        assert_eq!(long.line(5).expect("reads"), Scanned::Nothing);
        let text = r#""\u0000\u0000\n\\""#;
        assert_eq!(cursor(text).value(6).expect("reads"), bytes(text));
        assert_eq!(cursor(text).value(5).expect("reads"), Scanned::Long);
    }

    #[test]
    fn a_value_that_breaks_off_is_torn() {
        assert_eq!(cursor("{\"a\": [1, 2").value(99).expect("reads"), Scanned::Torn);
        assert_eq!(cursor("\"abc").value(99).expect("reads"), Scanned::Torn);
    }

    #[test]
    fn the_layout_is_seen_without_parsing() {
        let cases = [
            ("[1,\n2]\n", Layout::Whole),
            ("{}\n\n", Layout::Whole),
            ("{}\r\n{}", Layout::Lines),
            ("{\"a\":\"torn\n{}\n", Layout::Lines),
            ("{\n\"a\":1}\n", Layout::Whole),
            ("nonsense\n{}\n", Layout::Lines),
            ("{\"a\":\n{\"b\":1}\n{\"b\":2}\n", Layout::Lines),
            ("{\"a\":1,\n{\"b\":1}\n", Layout::Lines),
            ("{\"a\":[{\"c\":1},\n{\"a\":\n{\"b\":1}\n\n{\"b\":2}", Layout::Lines),
            ("[{\"a\":1},\n{\"b\":1}\n]\n{}", Layout::Whole),
            ("{\"a\":[\n{\"b\":1},\n{\"b\":1}", Layout::Whole),
            ("[\n{\"b\":1}\n", Layout::Whole),
            ("{\"a\":\n{\"b\":1}\n}\n", Layout::Whole),
            ("", Layout::Whole),
        ];
        for (text, layout) in cases {
            assert_eq!(cursor(text).layout().expect("reads"), layout, "{text:?}");
        }
    }
}
