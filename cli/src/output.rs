//! Commands print through this module alone. Servers, models, stored rows and files choose words that are printed: here they lose
//! the control characters that could take over the terminal.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "here everything was made harmless")]

use std::{
    fmt::{Display, Write as _},
    io::{self, Write},
};

use crate::paint::{harmless, is_harmful};

/// Prints a line.
pub(crate) fn line(text: impl Display) {
    println!("{}", harmless(&text.to_string()));
}

/// Prints a text that brings its own line ends.
pub(crate) fn text(text: &str) {
    print!("{}", harmless(text));
}

/// Prints a page that may have been painted: the colours of [`crate::paint::Paint`] pass, whoever put them there.
pub(crate) fn page(page: &str) {
    print!("{}", harmless_but_colours(page));
}

/// Prints JSON as a line. Characters that JSON may hold as they are, and a terminal obeys, are escaped: the value stays the same.
pub(crate) fn json(json: &str) {
    println!("{}", escaped(json));
}

/// Prints a line on standard error, beside what is the command's result.
pub(crate) fn note(text: impl Display) {
    eprintln!("{}", harmless(&text.to_string()));
}

/// JSON on its way to a terminal, escaped as [`json`] does it.
pub(crate) struct Escaping<W> {
    to: W,
    /// The beginning of a character whose end has not come.
    begun: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    pub(crate) const fn new(to: W) -> Self {
        Self { to, begun: Vec::new() }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.begun) {
            Err(cut) if cut.error_len().is_none() => cut.valid_up_to(),
            _ => self.begun.len(),
        };
        let whole: Vec<u8> = self.begun.drain(..whole).collect();
        self.to.write_all(escaped(&String::from_utf8_lossy(&whole)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The page without control characters but those of colours: `ESC [`, at most two digits, `m`.
fn harmless_but_colours(page: &str) -> String {
    let mut pieces = page.split('\u{1b}');
    let mut shown = harmless(pieces.next().unwrap_or_default());
    for piece in pieces {
        let colour = piece.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let is_code = |code: &str| matches!(code.len(), 1 | 2) && code.bytes().all(|digit| digit.is_ascii_digit());
        if let Some((code, rest)) = colour.filter(|(code, _)| is_code(code)) {
            let _ = write!(shown, "\u{1b}[{code}m{}", harmless(rest));
        } else {
            shown.push('\u{fffd}');
            shown.push_str(&harmless(piece));
        }
    }
    shown
}

/// JSON whose strings hold nothing that a terminal obeys. Outside of strings there is nothing of the kind.
fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut escaped, character| {
        if is_harmful(character) {
            let _ = write!(escaped, "\\u{:04x}", character as u32);
        } else {
            escaped.push(character);
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;

    #[test]
    fn colours_pass_and_nothing_else_does() {
        let painted = format!("{}\n\t{}", Paint::Coloured.bold("title"), Paint::Coloured.colour("31", "bar"));
        assert_eq!(harmless_but_colours(&painted), painted);
        assert_eq!(
            harmless_but_colours("a\u{1b}]0;b\u{7}\u{1b}[2J\u{1b}[999mc\u{1b}[31;8md\u{1b}\u{1b}[;m\u{9b}31m"),
            "a\u{fffd}]0;b\u{fffd}\u{fffd}[2J\u{fffd}[999mc\u{fffd}[31;8md\u{fffd}\u{fffd}[;m\u{fffd}31m"
        );
        assert_eq!(harmless_but_colours("\u{1b}"), "\u{fffd}");
    }

    #[test]
    fn json_means_the_same_when_it_is_escaped() {
        let value = serde_json::json!({"a\u{9b}\u{7f}": "\u{1b}[2J\u{202e}\u{85}\n\t\"é 港 👩‍👩‍👧"});
        let shown = escaped(&value.to_string());
        assert!(!shown.chars().any(is_harmful), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("is JSON"), value);
        let mut bytes = Escaping::new(Vec::new());
        for byte in value.to_string().as_bytes() {
            bytes.write_all(std::slice::from_ref(byte)).expect("is written");
        }
        assert_eq!(bytes.to, shown.as_bytes(), "wherever it is cut");
    }
}
