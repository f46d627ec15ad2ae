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

    /// A line for each row: name, bar, number of tokens and note. The bars show the shares of the
    /// sum of all rows. Rows with the number 0 are left out.
    pub(crate) fn bars(self, rows: &[Bar<'_>]) -> String {
        let tokens: Vec<u64> = rows.iter().map(|row| row.tokens).collect();
        let mut lines = String::new();
        for (row, length) in rows.iter().zip(bar_lengths(&tokens, BAR_CHARACTERS)) {
            if row.tokens == 0 {
                continue;
            }
            let bar = self.color(
                row.color,
                &format!("{:<BAR_CHARACTERS$}", "█".repeat(length)),
            );
            let _ = writeln!(lines, "  {:<16} {bar} {}{}", row.name, row.tokens, row.note);
        }
        lines
    }
}

/// The lengths of bars that show the parts of a whole. Together they have this many characters. A
/// part above zero has at least one, even if the lengths then add up to more.
pub(crate) fn bar_lengths(parts: &[u64], characters: usize) -> Vec<usize> {
    let whole: u128 = parts.iter().copied().map(u128::from).sum();
    let length = |part: &u64| (u128::from(*part) * characters as u128).div_ceil(whole.max(1));
    let mut lengths: Vec<usize> = parts
        .iter()
        .map(|part| length(part).max(u128::from(*part > 0)) as usize)
        .collect();
    while lengths.iter().sum::<usize>() > characters {
        match lengths.iter_mut().max() {
            Some(longest) if *longest > 1 => *longest -= 1,
            _ => break,
        }
    }
    lengths
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
    fn bars_are_shares_of_the_sum_and_rows_of_zero_are_left_out() {
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
        // The shares are 26.4, 13.2 and 0.3 characters.
        assert_eq!(lengths, [25, 14, 1], "{text}");
        assert_eq!(lengths.iter().sum::<usize>(), BAR_CHARACTERS);
    }

    #[test]
    fn bars_of_the_parts_fill_the_whole() {
        for parts in [&[7_u64, 7, 7][..], &[1, 1_000_000, 0, 3], &[u64::MAX, 1]] {
            let lengths = bar_lengths(parts, 30);
            assert_eq!(lengths.iter().sum::<usize>(), 30, "{parts:?}: {lengths:?}");
            assert!(
                parts
                    .iter()
                    .zip(&lengths)
                    .all(|(part, length)| (*part > 0) == (*length > 0)),
                "{parts:?}: {lengths:?}"
            );
        }
        assert_eq!(bar_lengths(&[5, 5], 1), [1, 1]);
        assert_eq!(bar_lengths(&[0, 0], 30), [0, 0]);
    }
}
