//! A conversation's title, made from its first user message.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::{
    limits::TITLE_BYTES,
    message::{Message, Part, Role},
};

/// Most characters of a title, counted as grapheme clusters.
pub const TITLE_CHARACTERS: usize = 30;

/// The title of a conversation with these messages: the beginning of the first visible text in a
/// user message; None if there is none.
pub fn of_messages(messages: &[Message]) -> Option<String> {
    let user_messages = messages.iter().filter(|message| message.role == Role::User);
    user_messages
        .flat_map(|message| &message.parts)
        .find_map(|part| match part {
            Part::Text { text } => of_text(text),
            _ => None,
        })
}

/// The beginning of a text as a title: at most [`TITLE_CHARACTERS`] whole characters and
/// [`TITLE_BYTES`] bytes, on one line, without control and bidirectional characters; None if the
/// text has no visible character.
pub fn of_text(text: &str) -> Option<String> {
    let line = one_line(text)?;
    let mut title = String::new();
    for character in line.graphemes(true).take(TITLE_CHARACTERS) {
        if title.len() + character.len() > TITLE_BYTES {
            break;
        }
        title.push_str(character);
    }
    if title.is_empty() {
        // One character with too many combining marks: keep as many marks as fit.
        title.push_str(&line[..line.floor_char_boundary(TITLE_BYTES)]);
    }
    Some(title.trim_end().to_owned())
}

/// The beginning of the text, from the first visible character on and on one line, as long as a
/// title may need; None if the text has no visible character.
fn one_line(text: &str) -> Option<String> {
    let mut line = String::new();
    let (mut blank_pending, mut ascii_only) = (false, true);
    for code_point in text.chars() {
        if code_point.is_whitespace() {
            blank_pending = !line.is_empty();
            continue;
        }
        if code_point.is_control()
            || is_bidirectional(code_point)
            || (line.is_empty() && !is_visible(code_point))
        {
            continue;
        }
        if std::mem::take(&mut blank_pending) {
            line.push(' ');
        }
        line.push(code_point);
        // Collects more than fits, so that the title's last character has all its combining marks.
        // In an ASCII text, one character more is enough. Stopping early there matters, because
        // most texts are long and every append of a user message computes a title.
        ascii_only &= code_point.is_ascii();
        if line.len() > 2 * TITLE_BYTES || (ascii_only && line.len() > TITLE_CHARACTERS) {
            break;
        }
    }
    (!line.is_empty()).then_some(line)
}

/// Characters that change the text direction. In a list they would affect the text that follows.
const fn is_bidirectional(code_point: char) -> bool {
    matches!(code_point, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the character is visible by itself. Joiners, fillers and format characters are not.
fn is_visible(code_point: char) -> bool {
    let hidden = matches!(code_point,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    !hidden
        && !code_point.is_whitespace()
        && !code_point.is_control()
        && !is_bidirectional(code_point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(text: &str) -> String {
        of_text(text).unwrap_or_default()
    }

    #[test]
    fn a_title_is_at_most_thirty_whole_characters_on_one_line() {
        assert_eq!(
            title("  How do I\r\n\tfix\u{2028} this?  "),
            "How do I fix this?"
        );
        assert_eq!(
            title(&"ab ".repeat(30)),
            "ab ab ab ab ab ab ab ab ab ab",
            "no blank at the end"
        );
        let accented = format!("{}\u{301}", "a".repeat(30));
        assert_eq!(
            title(&format!("{accented}b")),
            accented,
            "the last character is whole"
        );
        let family = "👩‍👩‍👧‍👦";
        assert_eq!(
            title(&family.repeat(40)),
            family.repeat(20),
            "TITLE_BYTES are reached first"
        );
        let flag = "🇨🇭";
        assert_eq!(title(&flag.repeat(40)), flag.repeat(30));
        assert_eq!(title(&"नमस्ते दुनिया ".repeat(9)).graphemes(true).count(), 30);
        assert_eq!(
            title("请把这个函数改成异步的,并且加上单元测试,覆盖所有的错误分支和边界"),
            "请把这个函数改成异步的,并且加上单元测试,覆盖所有的错误分支"
        );
    }

    #[test]
    fn control_and_bidirectional_characters_are_left_out() {
        assert_eq!(
            title("a\0b\u{1b}[31mc\u{202e}d\u{2066}e\u{200f}f"),
            "ab[31mcdef"
        );
        assert_eq!(title("\u{feff}\u{200b}hello"), "hello");
    }

    #[test]
    fn excessive_combining_marks_do_not_make_a_title_long_or_empty() {
        let zalgo = format!("Z{}", "\u{301}".repeat(10_000));
        let shortened = title(&zalgo);
        assert!(
            shortened.starts_with('Z')
                && shortened.len() <= TITLE_BYTES
                && shortened.len() > TITLE_BYTES - 4,
            "{}",
            shortened.len()
        );
        assert_eq!(title(&format!("ab {zalgo}")), "ab");
    }

    #[test]
    fn a_text_without_visible_characters_gives_no_title() {
        for text in [
            "",
            "  \n",
            "\0\u{1}",
            "\u{200b}\u{feff}",
            "\u{202e} \u{2066}",
            "\u{3164}\u{2800}",
        ] {
            assert_eq!(of_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_first_user_message_with_a_text_gives_the_title() {
        let message = |role, text: &str| Message {
            role,
            parts: vec![Part::Text {
                text: text.to_owned(),
            }],
            metadata: std::collections::BTreeMap::new(),
        };
        let messages = [
            message(Role::System, "be short"),
            message(Role::Assistant, "welcome"),
            message(Role::User, " \u{200b}"),
            message(Role::User, "the first"),
            message(Role::User, "the second"),
        ];
        assert_eq!(of_messages(&messages).as_deref(), Some("the first"));
        assert_eq!(of_messages(&messages[..3]), None);
    }
}
