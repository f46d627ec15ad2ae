//! Makes text from other sources safe for a terminal.

use std::fmt::Write as _;

/// The text with each control character except line feed and tab replaced by U+FFFD. A carriage
/// return before a line feed is removed. Characters that change the writing direction are shown by
/// their code, such as `<U+202E>`: otherwise a terminal would show the words in another order than
/// the text has them.
pub(crate) fn sanitize(text: &str) -> String {
    let mut sanitized = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            _ if changes_direction(character) => {
                let _ = write!(sanitized, "<U+{:04X}>", character as u32);
            }
            _ if is_unsafe(character) => sanitized.push('\u{fffd}'),
            _ => sanitized.push(character),
        }
    }
    sanitized
}

/// Whether a terminal interprets the character: control characters except line feed and tab, and
/// characters that change the writing direction.
pub(crate) fn is_unsafe(character: char) -> bool {
    changes_direction(character) || character.is_control() && !matches!(character, '\n' | '\t')
}

/// Whether the character changes the writing direction.
const fn changes_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Typed or pasted text with control characters replaced: each line end (CR LF or CR) by a line
/// feed, and any other control character except line feed and tab by U+FFFD. The editor shows the
/// result, and exactly this is sent.
pub(crate) fn sanitize_input(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    text.chars()
        .map(|character| match character {
            '\r' => '\n',
            '\n' | '\t' => character,
            _ if character.is_control() => '\u{fffd}',
            _ => character,
        })
        .collect()
}

/// Sanitizes a text that arrives in pieces. A line end of two characters may be split between
/// pieces.
#[derive(Debug, Default)]
pub(crate) struct StreamSanitizer {
    /// Whether the last piece ended with a carriage return.
    has_pending_cr: bool,
}

impl StreamSanitizer {
    /// Sanitizes the next piece.
    pub(crate) fn next(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        let whole = if self.has_pending_cr {
            format!("\r{piece}")
        } else {
            piece.to_owned()
        };
        self.has_pending_cr = whole.ends_with('\r');
        sanitize(whole.strip_suffix('\r').unwrap_or(&whole))
    }

    /// The rest of the text, after the last piece.
    pub(crate) fn end(&mut self) -> &'static str {
        if std::mem::take(&mut self.has_pending_cr) {
            "\u{fffd}"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_sanitized_like_the_whole_text() {
        let text = "a\r\nb\rc\r\r\n\u{1b}[2Jd\u{202e}\r";
        let cuts: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second >= first) {
                let mut stream = StreamSanitizer::default();
                let sanitized = [&text[..*first], &text[*first..*second], &text[*second..]]
                    .map(|piece| stream.next(piece));
                assert_eq!(
                    sanitized.concat() + stream.end(),
                    sanitize(text),
                    "{first} {second}"
                );
            }
        }
    }

    #[test]
    fn pasted_text_keeps_its_lines_and_loses_its_escapes() {
        assert_eq!(
            sanitize_input("a\r\nb\rc\n\td\u{1b}]0;e\u{7}\u{9b}f"),
            "a\nb\nc\n\td\u{fffd}]0;e\u{fffd}\u{fffd}f"
        );
        assert_eq!(sanitize_input("שלום\u{200f} 港口"), "שלום\u{200f} 港口");
    }

    #[test]
    fn a_stored_escape_sequence_does_not_reach_the_terminal() {
        assert_eq!(sanitize("a\u{1b}[2J\u{9b}b\n"), "a\u{fffd}[2J\u{fffd}b\n");
        assert_eq!(
            sanitize("over\rwritten\r\n\t\u{7f}"),
            "over\u{fffd}written\n\t\u{fffd}"
        );
    }

    #[test]
    fn characters_that_change_the_writing_direction_are_shown_by_their_code() {
        assert_eq!(
            sanitize("a\u{202e}cba\u{2069}\u{200f}"),
            "a<U+202E>cba<U+2069><U+200F>"
        );
        assert_eq!(sanitize("שלום 港口 👩‍👩‍👧"), "שלום 港口 👩‍👩‍👧");
    }
}
