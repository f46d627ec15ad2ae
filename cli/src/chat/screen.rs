//! What is printed, and where: for a person at a terminal, or for a pipe.

use std::io::{self, Write as _};

use crate::paint::{Paint, Pieces};

/// Columns where the terminal does not say how many it has.
const COLUMNS: usize = 80;
/// Rows likewise.
const ROWS: usize = 24;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// A person at a terminal: everything is shown where it happens.
    Person,
    /// A pipe or a file: answers alone go to standard output, what is said about them to standard error.
    Pipe,
}

/// Standard output and error of a chat.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) reader: Reader,
    pub(super) paint: Paint,
    /// Whether what was printed last ended its line.
    at_line_start: bool,
    /// What somebody says at the moment, and what they think.
    said: Pieces,
    thought: Pieces,
}

impl Screen {
    pub(super) fn new(reader: Reader, paint: Paint) -> Self {
        Self { reader, paint, at_line_start: true, said: Pieces::default(), thought: Pieces::default() }
    }

    /// More of what somebody said, as it comes; nothing in it can take the terminal over.
    pub(super) fn said(&mut self, text: &str) -> io::Result<()> {
        let text = self.said.next(text);
        self.put(&text)
    }

    /// More of what the model thought, dimmed; a pipe does not get it.
    pub(super) fn thought(&mut self, text: &str) -> io::Result<()> {
        match self.reader {
            Reader::Person => {
                let text = self.thought.next(text);
                if text.is_empty() {
                    return Ok(());
                }
                self.put(&self.paint.colour("2", &text))?;
                self.at_line_start = text.ends_with('\n');
                Ok(())
            }
            Reader::Pipe => Ok(()),
        }
    }

    /// What a command answers. Whoever writes the page has made strangers' words in it harmless.
    pub(super) fn page(&mut self, page: &str) -> io::Result<()> {
        self.end_line()?;
        self.put(page)?;
        self.end_line()
    }

    /// A piece of a page, which others follow.
    pub(super) fn piece(&mut self, piece: &str) -> io::Result<()> {
        self.put(piece)
    }

    /// A remark beside the conversation, on lines of its own.
    pub(super) fn note(&mut self, note: &str) -> io::Result<()> {
        self.end_line()?;
        match self.reader {
            Reader::Person => {
                let lines = note.lines().map(|line| self.paint.colour("2", line) + "\n");
                self.put(&lines.collect::<String>())
            }
            Reader::Pipe => writeln!(io::stderr(), "{note}"),
        }
    }

    /// What went wrong, on lines of its own.
    pub(super) fn trouble(&mut self, trouble: &str) -> io::Result<()> {
        self.end_line()?;
        let (first, rest) = trouble.split_once('\n').unwrap_or((trouble, ""));
        let first = self.paint.colour("31", first);
        self.put(&format!("{first}\n{rest}"))?;
        self.end_line()
    }

    /// Ends the line, if one has begun.
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        let left = [self.thought.end(), self.said.end()].concat();
        self.put(&left)?;
        if self.at_line_start { Ok(()) } else { self.put("\n") }
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.at_line_start = text.ends_with('\n');
        let mut out = io::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// Columns and rows of the terminal.
pub(super) fn size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
        _ => (COLUMNS, ROWS),
    }
}
