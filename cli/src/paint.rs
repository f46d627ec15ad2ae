//! What commands print for people: bars, colours where a terminal is, and texts that cannot take the terminal over.

use std::{fmt::Write as _, io::IsTerminal as _};

/// Characters of the longest bar.
const BAR: usize = 40;

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Paint {
    /// Escape codes around words.
    Coloured,
    /// Words alone.
    Plain,
}

impl Paint {
    /// Colours when standard output is a terminal and `NO_COLOR` is not set.
    pub(crate) fn of_output() -> Self {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !is_unwanted { Self::Coloured } else { Self::Plain }
    }

    /// Whether there are colours.
    pub(crate) const fn colours(self) -> bool {
        matches!(self, Self::Coloured)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.colour("1", text)
    }

    pub(crate) fn colour(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }

    /// A line for each figure: its name, a bar (the longest for the greatest), the figure. Zeros are left out.
    pub(crate) fn bars(self, rows: &[Bar<'_>]) -> String {
        let most = rows.iter().map(|row| row.tokens).max().unwrap_or(0).max(1);
        let mut lines = String::new();
        for row in rows.iter().filter(|row| row.tokens > 0) {
            let length = (row.tokens as usize * BAR).div_ceil(most as usize);
            let bar = self.colour(row.colour, &format!("{:<BAR$}", "█".repeat(length)));
            let _ = writeln!(lines, "  {:<16} {bar} {}{}", row.name, row.tokens, row.note);
        }
        lines
    }
}

/// One line with a bar.
#[derive(Debug)]
pub(crate) struct Bar<'a> {
    pub(crate) name: &'a str,
    pub(crate) tokens: u64,
    /// The terminal's number of its colour.
    pub(crate) colour: &'a str,
    /// What stands after the figure.
    pub(crate) note: String,
}

/// The text without control characters but line ends and tabs, and with those that turn the direction of writing around
/// spelt out: what somebody stored must not take the terminal over, nor show other words than it holds.
pub(crate) fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            _ if is_direction(character) => {
                let _ = write!(harmless, "<U+{:04X}>", character as u32);
            }
            _ if is_harmful(character) => harmless.push('\u{fffd}'),
            _ => harmless.push(character),
        }
    }
    harmless
}

/// Whether a terminal obeys it, or is led by it to show other words: control characters but line ends and tabs, and those that turn
/// the direction of writing around.
pub(crate) fn is_harmful(character: char) -> bool {
    is_direction(character) || character.is_control() && !matches!(character, '\n' | '\t')
}

const fn is_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What somebody types or pastes, without control characters but line ends and tabs: shown while it is edited, and said as
/// it is shown.
pub(crate) fn without_controls(text: &str) -> String {
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

/// Pieces of one text that come one after the other, each made harmless: where a line's end is cut in two, it is one.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Whether the last piece ended with a carriage return.
    waits: bool,
}

impl Pieces {
    /// The next piece.
    pub(crate) fn next(&mut self, piece: &str) -> String {
        if piece.is_empty() {
            return String::new();
        }
        let whole = if self.waits { format!("\r{piece}") } else { piece.to_owned() };
        self.waits = whole.ends_with('\r');
        harmless(whole.strip_suffix('\r').unwrap_or(&whole))
    }

    /// What is left when no more comes.
    pub(crate) fn end(&mut self) -> &'static str {
        if std::mem::take(&mut self.waits) { "\u{fffd}" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_harmless_as_the_whole_is_wherever_they_are_cut() {
        let text = "a\r\nb\rc\r\r\n\u{1b}[2Jd\u{202e}\r";
        let cuts: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second >= first) {
                let mut pieces = Pieces::default();
                let said = [&text[..*first], &text[*first..*second], &text[*second..]].map(|piece| pieces.next(piece));
                assert_eq!(said.concat() + pieces.end(), harmless(text), "{first} {second}");
            }
        }
    }

    #[test]
    fn what_is_pasted_keeps_its_lines_and_loses_its_escapes() {
        assert_eq!(
            without_controls("a\r\nb\rc\n\td\u{1b}]0;e\u{7}\u{9b}f"),
            "a\nb\nc\n\td\u{fffd}]0;e\u{fffd}\u{fffd}f"
        );
        assert_eq!(without_controls("שלום\u{200f} 港口"), "שלום\u{200f} 港口");
    }

    #[test]
    fn a_stored_escape_sequence_does_not_reach_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2J\u{9b}b\n"), "a\u{fffd}[2J\u{fffd}b\n");
        assert_eq!(harmless("over\rwritten\r\n\t\u{7f}"), "over\u{fffd}written\n\t\u{fffd}");
    }

    #[test]
    fn characters_that_turn_the_direction_of_writing_around_are_spelt_out() {
        assert_eq!(harmless("a\u{202e}cba\u{2069}\u{200f}"), "a<U+202E>cba<U+2069><U+200F>");
        assert_eq!(harmless("שלום 港口 👩‍👩‍👧"), "שלום 港口 👩‍👩‍👧");
    }

    #[test]
    fn bars_stand_in_proportion_and_zeros_are_left_out() {
        let bar = |name, tokens| Bar { name, tokens, colour: "31", note: String::new() };
        let text = Paint::Plain.bars(&[bar("all", 80), bar("none", 0), bar("half", 40), bar("one", 1)]);
        let lengths: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [BAR, BAR / 2, 1], "{text}");
    }
}
