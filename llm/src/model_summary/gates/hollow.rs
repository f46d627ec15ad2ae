//! A text that says nothing: a word or two for pages, or a model that will not do it.

use crate::extractive::{text, work};

use super::super::pieces::Piece;

/// Tokens of a source that has more to say than a sentence.
const LONG_SOURCE: u64 = 1_000;

/// What a text on a long source says at least: eight words, or twenty characters of a script without spaces.
const LEAST: u64 = 40;
const WORD: u64 = 5;
const WIDE: u64 = 2;

/// A refusal says no more than so many words; a report that begins like one goes on.
const REFUSAL_WORDS: usize = 40;

/// How models begin when they refuse.
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

/// Whether the text, which may count `target`, says next to nothing of a long source, or refuses. A text that may count
/// less than 40 says less.
pub(super) fn is(text: &str, piece: &Piece<'_>, target: u64) -> bool {
    (piece.tokens > LONG_SOURCE && said(text) < LEAST.min(target)) || refuses(text)
}

/// How much the text says, as far as [`LEAST`].
fn said(text: &str) -> u64 {
    let mut sum = 0;
    let mut in_word = false;
    for c in text.chars() {
        let is_wide = text::is_cjk(c) || text::is_southeast(c);
        let is_letter = c.is_alphanumeric() || text::is_indic_mark(c);
        if is_wide {
            sum += WIDE;
        } else if is_letter && !in_word {
            sum += WORD;
        }
        in_word = is_letter && !is_wide;
        if sum >= LEAST {
            break;
        }
    }
    sum
}

fn refuses(text: &str) -> bool {
    work::tick(text.len());
    let start: String = text.chars().take(20).collect::<String>().to_lowercase().replace('’', "'");
    REFUSALS.iter().any(|refusal| start.starts_with(refusal)) && text.split_whitespace().count() <= REFUSAL_WORDS
}

#[cfg(test)]
mod tests {
    use super::{LEAST, refuses, said};

    #[test]
    fn eight_words_or_twenty_wide_characters_say_something() {
        for text in ["OK.", "Done, done, done!", "Ann asked, and it was done.", "完成了。", "All is told: 1 2 3"] {
            assert!(said(text) < LEAST, "{text}");
        }
        for text in ["Ann asked for it, and Bob did it.", "用户要求修改订单地址，助手已经全部修改完成。"]
        {
            assert!(said(text) >= LEAST, "{text}");
        }
    }

    #[test]
    fn refusals_are_told_from_reports() {
        for text in ["I'm sorry, but I can't help with that.", "I can’t do it.", "As an AI, I have no memory of it."]
        {
            assert!(refuses(text), "{text}");
        }
        let long = format!("I cannot log in, says Ann. {}", "Bob looks at another of her logs. ".repeat(8));
        for text in ["Ann says: I can't log in.", "The assistant cannot help with that.", &long] {
            assert!(!refuses(text), "{text}");
        }
    }
}
