//! Plurals, paragraphs, and lines that fit the terminal.

use unicode_width::UnicodeWidthStr;

use crate::terminal_size;

/// The number and the noun: `1 message`, `2 messages`.
pub(crate) fn pluralize(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Maximum width of a line of a paragraph.
const WIDTH: usize = 100;
/// Columns by which the rest of a broken line is indented more than its beginning.
const HANGING_INDENT: usize = 4;

/// The text as a paragraph, as wide as the terminal, but at most 100 columns. The first line is
/// indented by two, the others by four. Words longer than a line stay whole.
pub(crate) fn wrap(text: &str) -> String {
    let width = terminal_size::output_columns().map_or(WIDTH, |columns| columns.min(WIDTH));
    let mut paragraph = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if paragraph.is_empty() {
            paragraph.push_str("  ");
            column = 2;
        } else if column + 1 + length > width {
            paragraph.push_str("\n    ");
            column = 4;
        } else {
            paragraph.push(' ');
            column += 1;
        }
        paragraph.push_str(word);
        column += length;
    }
    paragraph.push('\n');
    paragraph
}

/// The text with each line of more than `columns` columns broken between words. The rest of a
/// broken line is indented. Words longer than a line stay whole. Color codes take no columns.
pub(crate) fn break_lines(text: &str, columns: usize) -> String {
    text.split_inclusive('\n')
        .map(|line| {
            if visible_width(line.trim_end()) <= columns {
                line.to_owned()
            } else {
                break_line(line, columns)
            }
        })
        .collect()
}

fn break_line(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = (indent + HANGING_INDENT).min(columns / 2);
    let mut broken = String::with_capacity(line.len());
    let mut column = 0;
    let mut has_word = false;
    for piece in line.split_inclusive(' ') {
        let word_width = visible_width(piece.trim_end());
        if has_word && word_width > 0 && column + word_width > columns {
            broken.truncate(broken.trim_end_matches(' ').len());
            broken.push('\n');
            broken.push_str(&" ".repeat(indent));
            column = indent;
        }
        has_word |= word_width > 0;
        broken.push_str(piece);
        column += visible_width(piece.trim_end_matches('\n'));
    }
    broken
}

/// The columns that the text takes, without the color codes in it.
fn visible_width(text: &str) -> usize {
    let mut pieces = text.split('\u{1b}');
    let before_codes = pieces.next().map_or(0, UnicodeWidthStr::width);
    let after_codes = pieces.map(|piece| piece.split_once('m').map_or(0, |(_, rest)| rest.width()));
    before_codes + after_codes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_paragraph_has_more_than_100_characters() {
        let text = "a few words and so on ".repeat(40);
        let paragraph = wrap(&text);
        assert!(
            paragraph.lines().all(|line| line.chars().count() <= WIDTH),
            "{paragraph}"
        );
        assert!(
            paragraph
                .lines()
                .skip(1)
                .all(|line| line.starts_with("    ")),
            "{paragraph}"
        );
        assert_eq!(
            paragraph.split_whitespace().count(),
            text.split_whitespace().count()
        );
    }

    #[test]
    fn long_lines_are_broken_between_words_and_keep_their_indentation() {
        let text = "  a job of a kind, with an error that is long\nshort\n";
        assert_eq!(
            break_lines(text, 20),
            "  a job of a kind,\n      with an error\n      that is long\nshort\n"
        );
        assert_eq!(break_lines(text, 80), text);
        let word = "x".repeat(30);
        assert_eq!(break_lines(&word, 20), word);
        let colored = "\u{1b}[31m0123456789\u{1b}[0m 0123456789";
        assert_eq!(break_lines(colored, 21), colored);
        assert_eq!(
            break_lines("港口的渡轮 几点开", 12),
            "港口的渡轮\n    几点开"
        );
    }
}
