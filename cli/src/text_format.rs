//! Plurals and paragraphs.

/// The number and the noun: `1 message`, `2 messages`.
pub(crate) fn pluralize(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Maximum width of a line.
const WIDTH: usize = 100;

/// The text as a paragraph. The first line is indented by two, the others by four. Words longer
/// than a line stay whole.
pub(crate) fn wrap(text: &str) -> String {
    let mut paragraph = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if paragraph.is_empty() {
            paragraph.push_str("  ");
            column = 2;
        } else if column + 1 + length > WIDTH {
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
}
