//! Text and numbers in columns, with wide characters counted as two.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::text_format::pluralize;

/// The text on one line of exactly this width: cut with an ellipsis, or padded with blanks.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    let text = clipped(text, columns);
    let blanks = columns.saturating_sub(text.width());
    text + &" ".repeat(blanks)
}

/// The text on one line of at most this width. Cut with an ellipsis, between two grapheme clusters.
pub(crate) fn clipped(text: &str, columns: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.width() <= columns {
        return line;
    }
    let mut taken = 0;
    // Less than `columns`: one column is for the ellipsis.
    let fits = |grapheme: &&str| {
        taken += grapheme.width();
        taken < columns
    };
    line.graphemes(true).take_while(fits).chain(["…"]).collect()
}

/// The number with a comma before every three digits: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// How long ago something happened, in the largest unit that fits: `2 weeks ago`.
pub(crate) fn ago(seconds: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
    ];
    match UNITS.iter().find(|(length, _)| seconds >= *length) {
        Some((length, unit)) => format!("{} ago", pluralize((seconds / length) as usize, unit)),
        None => "just now".to_owned(),
    }
}

/// Number of bytes of the text that fill a screen. Long lines count as several rows. The cut is
/// after a whole line, or inside the first line if that is longer than the screen. It is after at
/// least one grapheme cluster, unless the text is empty.
pub(crate) fn screenful(text: &str, rows: usize, columns: usize) -> usize {
    let mut free_rows = rows.max(1);
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let needed = line
            .trim_end_matches('\n')
            .width()
            .div_ceil(columns.max(1))
            .max(1);
        if needed > free_rows {
            return if end > 0 {
                end
            } else {
                line_prefix_bytes(line, free_rows * columns.max(1))
            };
        }
        free_rows -= needed;
        end += line.len();
    }
    end
}

/// Number of bytes at the start of the line that fill this many columns. At least one grapheme
/// cluster is taken, unless the line is empty.
fn line_prefix_bytes(line: &str, columns: usize) -> usize {
    let mut taken = 0;
    let mut end = 0;
    for grapheme in line.graphemes(true) {
        taken += grapheme.width();
        if taken > columns && end > 0 {
            break;
        }
        end += grapheme.len();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_and_cut_to_display_columns_between_whole_characters() {
        for text in [
            "port",
            "港口的渡轮几点开",
            "👩‍👩‍👧 family, a long one",
            "a\tb\nc",
            "",
        ] {
            assert_eq!(fitted(text, 9).width(), 9, "{text}");
        }
        assert_eq!(fitted("港口", 6), "港口  ");
        assert_eq!(fitted("港口的渡轮", 6), "港口… ");
        assert_eq!(clipped("港口的渡轮", 80), "港口的渡轮");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let actual = [0, 999, 1_000, 180_000, 2_000_000].map(grouped);
        assert_eq!(actual, ["0", "999", "1,000", "180,000", "2,000,000"]);
    }

    #[test]
    fn ages_are_shown_in_their_largest_unit() {
        let actual = [0, 59, 60, 7_199, 86_400, 86_400 * 15, 86_400 * 800].map(ago);
        let expected = [
            "just now",
            "just now",
            "1 minute ago",
            "1 hour ago",
            "1 day ago",
            "2 weeks ago",
            "2 years ago",
        ];
        assert_eq!(actual, expected);
    }

    #[test]
    fn a_screen_is_filled_with_whole_lines() {
        assert_eq!(screenful("one\ntwo\nthree\n", 2, 80), "one\ntwo\n".len());
        assert_eq!(screenful("one\n\nthree\n", 3, 80), "one\n\nthree\n".len());
        assert_eq!(
            screenful("港口港口港口\nx", 2, 4),
            "港口港口".len(),
            "a line that is longer than the screen is cut"
        );
        assert_eq!(screenful("a\n港口港口\n", 2, 4), "a\n".len());
        assert_eq!(screenful("", 5, 5), 0);
        assert_eq!(
            screenful("港", 1, 1),
            "港".len(),
            "at least one character, or printing would never end"
        );
    }
}
