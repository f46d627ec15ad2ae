//! The output of commands. Printed text may come from servers, models, stored rows and files.
//! Therefore control characters, which could take over the terminal, are replaced or escaped here.
//! Only `chat/screen.rs`, `import/report.rs` and `export/mod.rs` write to standard output
//! themselves. For a terminal, the export does so through [`Escaping`].
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this module sanitizes all output"
)]

use std::{
    fmt::{Display, Write as _},
    io::{self, Write},
};

use crate::{
    sanitize::{is_unsafe, sanitize},
    terminal_size,
    text_format::break_lines,
};

/// The form in which a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    /// A JSON object on each line.
    Json,
}

impl OutputFormat {
    /// The form for the value of `--json`.
    pub(crate) const fn from_argument(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Prints a line, sanitized and fitted to the terminal.
pub(crate) fn print_line(text: impl Display) {
    println!("{}", fit_to_terminal(sanitize(&text.to_string())));
}

/// Prints a text with its own line ends, sanitized.
pub(crate) fn print(text: &str) {
    print!("{}", sanitize(text));
}

/// Prints a page fitted to the terminal, sanitized except for the color codes of
/// [`crate::terminal_style::TerminalStyle`].
pub(crate) fn print_page(page: &str) {
    print!("{}", fit_to_terminal(sanitize_except_colors(page)));
}

/// Like [`print_page`], with lines of any length: for the texts of messages, which stay as they
/// are.
pub(crate) fn print_unbroken_page(page: &str) {
    print!("{}", sanitize_except_colors(page));
}

/// The text with its long lines broken between words, if standard output is a terminal.
fn fit_to_terminal(text: String) -> String {
    match terminal_size::output_columns() {
        Some(columns) => break_lines(&text, columns),
        None => text,
    }
}

/// Prints a line of JSON. Escapes characters that are valid in JSON but unsafe for a terminal,
/// which does not change the value.
pub(crate) fn print_json(json: &str) {
    println!("{}", escaped(json));
}

/// Prints a line to standard error, sanitized.
pub(crate) fn print_note(text: impl Display) {
    eprintln!("{}", sanitize(&text.to_string()));
}

/// A writer that escapes JSON for a terminal, as [`print_json`] does.
pub(crate) struct Escaping<W> {
    inner: W,
    /// The first bytes of a character that is not complete yet.
    partial: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    pub(crate) const fn new(inner: W) -> Self {
        Self {
            inner,
            partial: Vec::new(),
        }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        let complete_bytes = match std::str::from_utf8(&self.partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.partial.len(),
        };
        let complete: Vec<u8> = self.partial.drain(..complete_bytes).collect();
        self.inner
            .write_all(escaped(&String::from_utf8_lossy(&complete)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The page with control characters replaced by U+FFFD, except in color codes: `ESC [`, one or two
/// digits, `m`.
fn sanitize_except_colors(page: &str) -> String {
    let mut pieces = page.split('\u{1b}');
    let mut shown = sanitize(pieces.next().unwrap_or_default());
    for piece in pieces {
        let color = piece
            .strip_prefix('[')
            .and_then(|rest| rest.split_once('m'));
        let is_code = |code: &str| {
            matches!(code.len(), 1 | 2) && code.bytes().all(|digit| digit.is_ascii_digit())
        };
        if let Some((code, rest)) = color.filter(|(code, _)| is_code(code)) {
            let _ = write!(shown, "\u{1b}[{code}m{}", sanitize(rest));
        } else {
            shown.push('\u{fffd}');
            shown.push_str(&sanitize(piece));
        }
    }
    shown
}

/// JSON with unsafe characters escaped. Such characters occur only inside strings.
fn escaped(json: &str) -> String {
    json.chars().fold(
        String::with_capacity(json.len()),
        |mut escaped, character| {
            if is_unsafe(character) {
                let _ = write!(escaped, "\\u{:04x}", character as u32);
            } else {
                escaped.push(character);
            }
            escaped
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal_style::TerminalStyle;

    #[test]
    fn color_codes_stay_and_other_control_characters_are_replaced() {
        let colored = format!(
            "{}\n\t{}",
            TerminalStyle::Colored.bold("title"),
            TerminalStyle::Colored.color("31", "bar")
        );
        assert_eq!(sanitize_except_colors(&colored), colored);
        assert_eq!(
            sanitize_except_colors(
                "a\u{1b}]0;b\u{7}\u{1b}[2J\u{1b}[999mc\u{1b}[31;8md\u{1b}\u{1b}[;m\u{9b}31m"
            ),
            "a\u{fffd}]0;b\u{fffd}\u{fffd}[2J\u{fffd}[999mc\u{fffd}[31;8md\u{fffd}\u{fffd}[;m\u{fffd}31m"
        );
        assert_eq!(sanitize_except_colors("\u{1b}"), "\u{fffd}");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"a\u{9b}\u{7f}": "\u{1b}[2J\u{202e}\u{85}\n\t\"é 港 👩‍👩‍👧"});
        let shown = escaped(&value.to_string());
        assert!(!shown.chars().any(is_unsafe), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).expect("is JSON"),
            value
        );
        let mut writer = Escaping::new(Vec::new());
        for byte in value.to_string().as_bytes() {
            writer
                .write_all(std::slice::from_ref(byte))
                .expect("is written");
        }
        assert_eq!(
            writer.inner,
            shown.as_bytes(),
            "writing byte by byte gives the same output"
        );
    }
}
