//! Output of a chat, for a person at a terminal or for a pipe.

use std::io::{self, Write as _};

use crate::{sanitize::StreamSanitizer, terminal_style::TerminalStyle};

/// The reader of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// A person at a terminal: everything goes to standard output.
    Person,
    /// A pipe or a file: answers and pages go to standard output, notes to standard error.
    Pipe,
}

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) reader: Reader,
    pub(super) style: TerminalStyle,
    /// Whether the last output ended with a line end.
    at_line_start: bool,
    /// Sanitizes the answer's text, which arrives in pieces.
    text_sanitizer: StreamSanitizer,
    /// Sanitizes the model's reasoning, which arrives in pieces.
    reasoning_sanitizer: StreamSanitizer,
}

impl Screen {
    pub(super) fn new(reader: Reader, style: TerminalStyle) -> Self {
        Self {
            reader,
            style,
            at_line_start: true,
            text_sanitizer: StreamSanitizer::default(),
            reasoning_sanitizer: StreamSanitizer::default(),
        }
    }

    /// Prints a piece of an answer, sanitized.
    pub(super) fn print_text(&mut self, text: &str) -> io::Result<()> {
        let text = self.text_sanitizer.next(text);
        self.write(&text)
    }

    /// Prints a piece of reasoning, dimmed. Not printed on a pipe.
    pub(super) fn print_reasoning(&mut self, text: &str) -> io::Result<()> {
        match self.reader {
            Reader::Person => {
                let text = self.reasoning_sanitizer.next(text);
                if text.is_empty() {
                    return Ok(());
                }
                self.write(&self.style.color("2", &text))?;
                self.at_line_start = text.ends_with('\n');
                Ok(())
            }
            Reader::Pipe => Ok(()),
        }
    }

    /// Prints the output of a command. The caller has sanitized it.
    pub(super) fn print_page(&mut self, page: &str) -> io::Result<()> {
        self.end_line()?;
        self.write(page)?;
        self.end_line()
    }

    /// Prints a piece of a page. The caller has sanitized it.
    pub(super) fn print_piece(&mut self, piece: &str) -> io::Result<()> {
        self.write(piece)
    }

    /// Prints a note on lines of its own.
    pub(super) fn print_note(&mut self, note: &str) -> io::Result<()> {
        self.end_line()?;
        match self.reader {
            Reader::Person => {
                let lines = note.lines().map(|line| self.style.color("2", line) + "\n");
                self.write(&lines.collect::<String>())
            }
            Reader::Pipe => writeln!(io::stderr(), "{note}"),
        }
    }

    /// Prints an error on lines of its own.
    pub(super) fn print_error(&mut self, error: &str) -> io::Result<()> {
        self.end_line()?;
        let (first, rest) = error.split_once('\n').unwrap_or((error, ""));
        let first = self.style.color("31", first);
        self.write(&format!("{first}\n{rest}"))?;
        self.end_line()
    }

    /// Prints the text that the sanitizers hold back. Then ends the current line if it is not
    /// empty.
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        let held_back = [self.reasoning_sanitizer.end(), self.text_sanitizer.end()].concat();
        self.write(&held_back)?;
        if self.at_line_start {
            Ok(())
        } else {
            self.write("\n")
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.at_line_start = text.ends_with('\n');
        let mut out = io::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}
