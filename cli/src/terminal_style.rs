//! Colors and bars in the output of commands.

use std::{fmt::Write as _, io::IsTerminal as _};

/// Characters of the longest bar.
const BAR_CHARACTERS: usize = 40;

/// Whether output has colors and bold text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TerminalStyle {
    /// With escape codes.
    Colored,
    /// Without escape codes.
    Plain,
}

impl TerminalStyle {
    /// Colored if standard output is a terminal and `NO_COLOR` is unset or empty.
    pub(crate) fn of_output() -> Self {
        let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !is_disabled {
            Self::Colored
        } else {
            Self::Plain
        }
    }

    pub(crate) const fn has_colors(self) -> bool {
        matches!(self, Self::Colored)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.color("1", text)
    }

    /// The text with this terminal code, for example 2 (dimmed) or 31 (red).
    pub(crate) fn color(self, code: &str, text: &str) -> String {
        match self {
            Self::Colored => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }

    /// A line for each row: name, bar, number of tokens and note. The largest number has the longest
    /// bar. Rows with the number 0 are left out.
    pub(crate) fn bars(self, rows: &[Bar<'_>]) -> String {
        let most = rows.iter().map(|row| row.tokens).max().unwrap_or(0).max(1);
        let mut lines = String::new();
        for row in rows.iter().filter(|row| row.tokens > 0) {
            let length = (row.tokens as usize * BAR_CHARACTERS).div_ceil(most as usize);
            let bar = self.color(
                row.color,
                &format!("{:<BAR_CHARACTERS$}", "█".repeat(length)),
            );
            let _ = writeln!(lines, "  {:<16} {bar} {}{}", row.name, row.tokens, row.note);
        }
        lines
    }
}

/// A row with a bar.
#[derive(Debug)]
pub(crate) struct Bar<'a> {
    pub(crate) name: &'a str,
    pub(crate) tokens: u64,
    /// The terminal's color code.
    pub(crate) color: &'a str,
    /// Text after the number.
    pub(crate) note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_rows_of_zero_are_left_out() {
        let bar = |name, tokens| Bar {
            name,
            tokens,
            color: "31",
            note: String::new(),
        };
        let text = TerminalStyle::Plain.bars(&[
            bar("all", 80),
            bar("none", 0),
            bar("half", 40),
            bar("one", 1),
        ]);
        let lengths: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [BAR_CHARACTERS, BAR_CHARACTERS / 2, 1], "{text}");
    }
}
