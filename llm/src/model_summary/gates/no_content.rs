//! Gate: the text is only a few words about a long source, or is a refusal.

use crate::extractive::{text, work};

use super::super::chunks::Chunk;

/// A source with more tokens than this has more content than one sentence can hold.
const LONG_SOURCE_TOKENS: u64 = 1_000;

/// Fewest points of a text about a long source: eight words, or twenty characters of a script
/// without spaces.
const MIN_POINTS: u64 = 40;
const WORD_POINTS: u64 = 5;
const WIDE_CHAR_POINTS: u64 = 2;

/// Most words of a refusal. A longer text that begins like one is a report.
const MAX_REFUSAL_WORDS: usize = 40;

/// Beginnings of refusals.
const REFUSALS: [&str; 12] = [
    "i can't",
    "i cannot",
    "i can not",
    "i won't",
    "i'm sorry",
    "i am sorry",
    "i'm unable",
    "i am unable",
    "i'm not able",
    "i am not able",
    "as an ai",
    "sorry, ",
];

/// Whether the text has almost no content although its source is long, or is a refusal. Enough
/// content is [`MIN_POINTS`] points, or one point per token of `target` if that is less.
pub(super) fn has_no_content(text: &str, chunk: &Chunk<'_>, target: u64) -> bool {
    (chunk.tokens > LONG_SOURCE_TOKENS && content_points(text) < MIN_POINTS.min(target))
        || refuses(text)
}

/// The content of the text in points, counted up to [`MIN_POINTS`].
fn content_points(text: &str) -> u64 {
    let mut sum = 0;
    let mut in_word = false;
    for c in text.chars() {
        let is_wide = text::is_cjk(c) || text::is_southeast_asian(c);
        let is_word_char = c.is_alphanumeric() || text::is_indic_mark(c);
        if is_wide {
            sum += WIDE_CHAR_POINTS;
        } else if is_word_char && !in_word {
            sum += WORD_POINTS;
        }
        in_word = is_word_char && !is_wide;
        if sum >= MIN_POINTS {
            break;
        }
    }
    sum
}

/// Whether the text is a refusal.
fn refuses(text: &str) -> bool {
    work::tick(text.len());
    let start: String = text
        .chars()
        .take(20)
        .collect::<String>()
        .to_lowercase()
        .replace('’', "'");
    REFUSALS.iter().any(|refusal| start.starts_with(refusal))
        && text.split_whitespace().count() <= MAX_REFUSAL_WORDS
}

#[cfg(test)]
mod tests {
    use super::{MIN_POINTS, content_points, refuses};

    #[test]
    fn eight_words_or_twenty_wide_characters_are_content() {
        for text in [
            "OK.",
            "Done, done, done!",
            "Ann asked, and it was done.",
            "完成了。",
            "All is told: 1 2 3",
        ] {
            assert!(content_points(text) < MIN_POINTS, "{text}");
        }
        for text in [
            "Ann asked for it, and Bob did it.",
            "用户要求修改订单地址，助手已经全部修改完成。",
        ] {
            assert!(content_points(text) >= MIN_POINTS, "{text}");
        }
    }

    #[test]
    fn refusals_are_distinguished_from_reports() {
        for text in [
            "I'm sorry, but I can't help with that.",
            "I can’t do it.",
            "As an AI, I have no memory of it.",
        ] {
            assert!(refuses(text), "{text}");
        }
        let long = format!(
            "I cannot log in, says Ann. {}",
            "Bob looks at another of her logs. ".repeat(8)
        );
        for text in [
            "Ann says: I can't log in.",
            "The assistant cannot help with that.",
            &long,
        ] {
            assert!(!refuses(text), "{text}");
        }
    }
}
