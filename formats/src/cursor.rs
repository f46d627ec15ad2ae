//! Reads lines and JSON values from a file, one at a time, without parsing the JSON.

use std::io::{self, BufRead, BufReader, Read, Seek};

use anneal_core::limits::{MESSAGE_BYTES, REQUEST_BYTES};

use crate::json_scanner::JsonScanner;

/// Longest line or value in bytes, with an escape sequence counted as one byte: the largest message
/// and the fields around it.
pub(crate) const ELEMENT_BYTES: usize = MESSAGE_BYTES + 2 * REQUEST_BYTES;
/// Most lines that are examined to detect the layout, after a first line that leaves a bracket
/// open.
const MAX_LAYOUT_LINES: usize = 100;
/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 * 1024;

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Bytes before the position.
    pub(crate) offset: u64,
    /// The line of the position, from 1.
    pub(crate) line: u64,
}

/// The result of a scan for a line or a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// The bytes of the line or value.
    Bytes(Vec<u8>),
    /// The line or value is longer than the limit, and was skipped.
    TooLong,
    /// There is no line or value: the file ends here, or the list or object around the position
    /// does.
    Absent,
    /// The file ends in the middle of the value.
    Truncated,
}

/// The layout of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One JSON value.
    SingleValue,
    /// A JSON value on each line.
    Lines,
}

/// A file, and the position up to which it has been read.
pub(crate) struct Cursor<R> {
    input: BufReader<R>,
    position: Position,
    /// The offset that is treated as the end of the file; see [`Self::end_at`].
    end: u64,
}

impl<R: Read + Seek> Cursor<R> {
    /// Starts at the beginning of the file, after a byte order mark.
    pub(crate) fn new(file: R) -> io::Result<Self> {
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut cursor = Self {
            input,
            position: Position { offset: 0, line: 1 },
            end: u64::MAX,
        };
        if cursor.input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            cursor.input.consume(3);
            cursor.position.offset = 3;
        }
        Ok(cursor)
    }

    pub(crate) const fn position(&self) -> Position {
        self.position
    }

    /// Seeks to a position that was returned by [`Self::position`].
    pub(crate) fn seek_to(&mut self, position: Position) -> io::Result<()> {
        let by = i64::try_from(position.offset).unwrap_or(i64::MAX)
            - i64::try_from(self.position.offset).unwrap_or(i64::MAX);
        self.input.seek_relative(by)?;
        self.position = position;
        Ok(())
    }

    /// Treats this offset as the end of the file.
    pub(crate) const fn end_at(&mut self, offset: u64) {
        self.end = offset;
    }

    /// Fills the buffer if it is empty. Returns the buffered bytes before the end.
    fn fill_chunk(&mut self) -> io::Result<&[u8]> {
        let bytes_before_end =
            usize::try_from(self.end.saturating_sub(self.position.offset)).unwrap_or(usize::MAX);
        loop {
            match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        let buffer = self.input.buffer();
        Ok(&buffer[..buffer.len().min(bytes_before_end)])
    }

    fn consume(&mut self, bytes: usize) {
        let line_ends = self.input.buffer()[..bytes]
            .split(|byte| *byte == b'\n')
            .count()
            - 1;
        self.input.consume(bytes);
        self.position.offset += bytes as u64;
        self.position.line += line_ends as u64;
    }

    /// The next byte, without consuming it.
    pub(crate) fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.fill_chunk()?.first().copied())
    }

    /// The next byte that is not a blank, without consuming it. Consumes the blanks.
    pub(crate) fn peek_non_blank(&mut self) -> io::Result<Option<u8>> {
        loop {
            let chunk = self.fill_chunk()?;
            let blanks = chunk
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            let (next, at_end) = (chunk.get(blanks).copied(), chunk.is_empty());
            self.consume(blanks);
            if next.is_some() || at_end {
                return Ok(next);
            }
        }
    }

    /// Consumes blanks and then this byte, if it is next. Returns whether it was.
    pub(crate) fn consume_if(&mut self, byte: u8) -> io::Result<bool> {
        let is_next = self.peek_non_blank()? == Some(byte);
        if is_next {
            self.consume(1);
        }
        Ok(is_next)
    }

    /// Reads the rest of the line, without its line end. A line of more than `max_bytes`, with an
    /// escape sequence counted as one byte, is skipped as [`Scanned::TooLong`].
    pub(crate) fn read_line(&mut self, max_bytes: usize) -> io::Result<Scanned> {
        let mut buffer = BoundedBytes::new(max_bytes);
        if self.peek()?.is_none() {
            return Ok(Scanned::Absent);
        }
        loop {
            let chunk = self.fill_chunk()?;
            if chunk.is_empty() {
                return Ok(buffer.scanned());
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let bytes = end.unwrap_or(chunk.len());
            buffer.take(&chunk[..bytes]);
            self.consume(end.map_or(bytes, |end| end + 1));
            if end.is_some() {
                return Ok(buffer.scanned());
            }
        }
    }

    /// Skips the rest of the line and its line end. Returns [`Scanned::Absent`] at the end of the
    /// file.
    pub(crate) fn skip_line(&mut self) -> io::Result<Scanned> {
        self.read_line(0)
    }

    /// Skips blanks and reads the next JSON value by its brackets and quotes. A value of more than
    /// `max_bytes`, counted in the same way, is skipped as [`Scanned::TooLong`].
    pub(crate) fn read_value(&mut self, max_bytes: usize) -> io::Result<Scanned> {
        if matches!(
            self.peek_non_blank()?,
            None | Some(b']' | b'}' | b',' | b':')
        ) {
            return Ok(Scanned::Absent);
        }
        let mut buffer = BoundedBytes::new(max_bytes);
        let mut scanner = JsonScanner::default();
        loop {
            let chunk = self.fill_chunk()?;
            if chunk.is_empty() {
                return Ok(if scanner.can_end() {
                    buffer.scanned()
                } else {
                    Scanned::Truncated
                });
            }
            let (bytes, value_ends) = scanner.scan(chunk);
            buffer.take(&chunk[..bytes]);
            self.consume(bytes);
            if value_ends {
                return Ok(buffer.scanned());
            }
        }
    }

    /// Skips the next JSON value. For a complete value of any length this returns empty bytes.
    pub(crate) fn skip_value(&mut self) -> io::Result<Scanned> {
        Ok(match self.read_value(0)? {
            Scanned::TooLong => Scanned::Bytes(Vec::new()),
            other => other,
        })
    }

    /// Detects the layout of the file. The cursor stays at the first byte that is not a blank. A
    /// first line that ends within a string counts as a truncated line, not as the beginning of a
    /// value that spans lines. So does a first line with an open bracket that is followed by
    /// objects without commas between them.
    pub(crate) fn detect_layout(&mut self) -> io::Result<Layout> {
        self.peek_non_blank()?;
        let start = self.position();
        let mut scanner = JsonScanner::default();
        let layout = loop {
            let chunk = self.fill_chunk()?;
            if chunk.is_empty() {
                break Layout::SingleValue;
            }
            let end = chunk
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(chunk.len());
            let (bytes, value_ends) = scanner.scan(&chunk[..end]);
            let line_ends = end < chunk.len();
            self.consume(if value_ends { bytes } else { end });
            if value_ends {
                break self.layout_after_first_value()?;
            }
            if line_ends {
                break if scanner.can_end() || scanner.within_text() {
                    self.layout_after_first_value()?
                } else {
                    self.layout_after_open_line(scanner.within_list())?
                };
            }
        };
        self.seek_to(start)?;
        Ok(layout)
    }

    /// The layout of a file whose first line leaves a bracket open: a list's if `within_list`.
    /// Inside one value, an object is followed by a comma or a bracket. An object that is followed
    /// by another value means one value per line. So does an object that ends the file directly
    /// after the first line, unless it may belong to a list. Several lines are examined because a
    /// truncated line may be followed by other truncated lines.
    fn layout_after_open_line(&mut self, within_list: bool) -> io::Result<Layout> {
        for index in 0..MAX_LAYOUT_LINES {
            let is_one_line_object =
                self.peek_non_blank()? == Some(b'{') && self.skip_one_line_object()?;
            match self.peek_non_blank()? {
                Some(b'{' | b'[') if is_one_line_object => return Ok(Layout::Lines),
                None if is_one_line_object && index == 0 && !within_list => {
                    return Ok(Layout::Lines);
                }
                Some(b',' | b']' | b'}') if is_one_line_object => return Ok(Layout::SingleValue),
                None => return Ok(Layout::SingleValue),
                Some(_) => drop(self.skip_line()?),
            }
        }
        Ok(Layout::SingleValue)
    }

    /// Skips the next object if it ends on the line on which it begins. Returns whether it does;
    /// otherwise nothing is skipped.
    fn skip_one_line_object(&mut self) -> io::Result<bool> {
        let start = self.position();
        self.skip_line()?;
        let next = self.position();
        self.seek_to(start)?;
        self.end_at(next.offset);
        let ends = matches!(self.skip_value()?, Scanned::Bytes(_));
        self.end_at(u64::MAX);
        if !ends {
            self.seek_to(start)?;
        }
        Ok(ends)
    }

    /// Skips the rest of the current line, and all lines up to the next one that begins with an
    /// object or a list. Returns the number of lines skipped.
    pub(crate) fn skip_to_next_value(&mut self) -> io::Result<u64> {
        let mut lines = 0;
        while self.skip_line()? != Scanned::Absent {
            lines += 1;
            if matches!(self.peek()?, None | Some(b'[' | b'{')) {
                break;
            }
        }
        Ok(lines)
    }

    /// The layout of a file whose first line ends its first value, or ends within a string: lines
    /// if more follows.
    fn layout_after_first_value(&mut self) -> io::Result<Layout> {
        Ok(if self.peek_non_blank()?.is_some() {
            Layout::Lines
        } else {
            Layout::SingleValue
        })
    }
}

/// Collects bytes up to a limit. An escape sequence counts as one byte.
struct BoundedBytes {
    bytes: Vec<u8>,
    max_bytes: usize,
    /// Bytes so far, with an escape sequence counted as one byte.
    counted_bytes: usize,
    /// Position in an escape sequence. 0: outside of one; 1: the byte after the backslash; 5 to 2:
    /// the four digits after a `u`.
    escape: usize,
    /// Whether the limit was exceeded. Then no bytes are kept.
    exceeds_limit: bool,
}

impl BoundedBytes {
    const fn new(max_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            max_bytes,
            counted_bytes: 0,
            escape: 0,
            exceeds_limit: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.exceeds_limit {
            return;
        }
        for byte in bytes {
            match (self.escape, byte) {
                (0, b'\\') => (self.escape, self.counted_bytes) = (1, self.counted_bytes + 1),
                (0, _) => self.counted_bytes += 1,
                (1, b'u') => self.escape = 5,
                (1 | 2, _) => self.escape = 0,
                (_, _) => self.escape -= 1,
            }
        }
        self.exceeds_limit = self.counted_bytes > self.max_bytes;
        if self.exceeds_limit {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn scanned(self) -> Scanned {
        if self.exceeds_limit {
            Scanned::TooLong
        } else {
            Scanned::Bytes(self.bytes)
        }
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
    fn a_value_ends_at_its_closing_bracket_or_quote() {
        let mut cursor = cursor("\u{feff} {\"a\":\"}\\\"]\"} [1,[2]]\n\"x\\\\\" 12,");
        assert_eq!(
            cursor.read_value(99).expect("reads"),
            bytes("{\"a\":\"}\\\"]\"}")
        );
        assert_eq!(cursor.read_value(99).expect("reads"), bytes("[1,[2]]"));
        assert_eq!(cursor.read_value(99).expect("reads"), bytes("\"x\\\\\""));
        assert_eq!(
            (
                cursor.read_value(99).expect("reads"),
                cursor.position().line
            ),
            (bytes("12"), 2)
        );
        assert_eq!(cursor.read_value(99).expect("reads"), Scanned::Absent);
    }

    #[test]
    fn too_long_values_are_skipped_and_an_escape_sequence_counts_as_one_byte() {
        let mut long = cursor("[\"0123456789\"]\n[1]\n");
        assert_eq!(long.read_line(5).expect("reads"), Scanned::TooLong);
        assert_eq!(long.read_line(5).expect("reads"), bytes("[1]"));
        assert_eq!(long.read_line(5).expect("reads"), Scanned::Absent);
        // 6 bytes: two quotes and four escape sequences.
        let text = r#""\u0000\u0000\n\\""#;
        assert_eq!(cursor(text).read_value(6).expect("reads"), bytes(text));
        assert_eq!(cursor(text).read_value(5).expect("reads"), Scanned::TooLong);
    }

    #[test]
    fn an_incomplete_value_is_truncated() {
        assert_eq!(
            cursor("{\"a\": [1, 2").read_value(99).expect("reads"),
            Scanned::Truncated
        );
        assert_eq!(
            cursor("\"abc").read_value(99).expect("reads"),
            Scanned::Truncated
        );
    }

    #[test]
    fn the_layout_is_detected_without_parsing() {
        let cases = [
            ("[1,\n2]\n", Layout::SingleValue),
            ("{}\n\n", Layout::SingleValue),
            ("{}\r\n{}", Layout::Lines),
            ("{\"a\":\"cut\n{}\n", Layout::Lines),
            ("{\n\"a\":1}\n", Layout::SingleValue),
            ("nonsense\n{}\n", Layout::Lines),
            ("{\"a\":\n{\"b\":1}\n{\"b\":2}\n", Layout::Lines),
            ("{\"a\":1,\n{\"b\":1}\n", Layout::Lines),
            (
                "{\"a\":[{\"c\":1},\n{\"a\":\n{\"b\":1}\n\n{\"b\":2}",
                Layout::Lines,
            ),
            ("[{\"a\":1},\n{\"b\":1}\n]\n{}", Layout::SingleValue),
            ("{\"a\":[\n{\"b\":1},\n{\"b\":1}", Layout::SingleValue),
            ("[\n{\"b\":1}\n", Layout::SingleValue),
            ("{\"a\":\n{\"b\":1}\n}\n", Layout::SingleValue),
            ("", Layout::SingleValue),
        ];
        for (text, layout) in cases {
            assert_eq!(
                cursor(text).detect_layout().expect("reads"),
                layout,
                "{text:?}"
            );
        }
    }
}
