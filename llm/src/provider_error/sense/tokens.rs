//! The words, numbers and signs of a text.

use crate::provider_error::pattern;

/// Signs that are kept.
const SIGNS: &str = ",;:.()!?/=+<>";

/// Signs that are kept as others.
const SIGNS_AS_OTHERS: [(char, char); 8] = [
    ('\u{2264}', '<'),
    ('\u{2265}', '>'),
    ('\u{ff1a}', ':'),
    ('\u{ff0c}', ','),
    ('\u{ff08}', '('),
    ('\u{ff09}', ')'),
    ('\u{ff1b}', ';'),
    ('\u{ff01}', '!'),
];

/// Suffixes of a number, and what they multiply it by.
const SCALES: [(&str, u64); 4] = [
    (" thousand", 1_000),
    (" million", 1_000_000),
    ("k", 1_000),
    ("m", 1_000_000),
];

/// Words to which a number is joined if a server forgets the space. Other words with digits are
/// names.
const BEFORE_JOINED_NUMBERS: [&str; 12] = [
    "is", "was", "are", "has", "of", "than", "to", "at", "limit", "only", "window", "length",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// A word, or a name with digits in it such as `gpt-4o`, `2024-05-13` or `1.5`.
    Word(&'t str),
    /// A number by itself, however its digits are grouped. `8k` is 8,000, `2.1m` 2,100,000.
    Number(u64),
    Sign(char),
}

/// The tokens of a text in lower case.
pub(super) fn read(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let used = if next.is_ascii_digit() {
            read_number(rest, &mut found)
        } else if is_word_char(next) {
            let length = word_before_number(rest).unwrap_or_else(|| word_bytes(rest));
            found.push(Token::Word(&rest[..length]));
            length
        } else {
            found.extend(sign(next).map(Token::Sign));
            next.len_utf8()
        };
        rest = &rest[used..];
    }
    found
}

fn sign(next: char) -> Option<char> {
    let other = SIGNS_AS_OTHERS.iter().find(|(wide, _)| *wide == next);
    other
        .map(|(_, sign)| *sign)
        .or_else(|| SIGNS.contains(next).then_some(next))
}

/// Bytes of a short word to which a number of three digits or more is joined: "is2614tokens".
fn word_before_number(text: &str) -> Option<usize> {
    let end = text.find(|next: char| !next.is_ascii_alphabetic())?;
    let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
    (digits >= 3 && BEFORE_JOINED_NUMBERS.contains(&&text[..end])).then_some(end)
}

pub(super) fn is_word_char(next: char) -> bool {
    next.is_alphanumeric() || next == '_'
}

/// Bytes of the word at the start of a text. Its parts may be joined by `-`, `.` or an apostrophe.
fn word_bytes(text: &str) -> usize {
    let mut end = 0;
    loop {
        let part = &text[end..];
        end += part.find(|next| !is_word_char(next)).unwrap_or(part.len());
        let mut following = text[end..].chars();
        let joint = following
            .next()
            .filter(|joint| matches!(joint, '-' | '.' | '\'' | '\u{2019}'));
        let goes_on = following.next().is_some_and(is_word_char);
        match joint {
            Some(joint) if goes_on => end += joint.len_utf8(),
            _ => return end,
        }
    }
}

/// Adds the number at the start of a text, and returns its bytes. A number that is part of a name,
/// a decimal or a date is added as a word.
fn read_number<'t>(text: &'t str, found: &mut Vec<Token<'t>>) -> usize {
    let read = scaled(text).filter(|(_, rest)| !continues_a_name(rest));
    let Some((value, rest)) = read else {
        let length = text.find(|next| !is_word_char(next) && !matches!(next, '.' | '-'));
        let length = length.unwrap_or(text.len());
        found.push(Token::Word(&text[..length]));
        return length;
    };
    found.push(Token::Number(value));
    let used = text.len() - rest.len();
    if rest.starts_with('%') {
        found.push(Token::Word("percent"));
    }
    // Of `8192-token`, the word is read without its dash.
    used + usize::from(rest.starts_with(['-', '%']))
}

/// The number at the start of a text with its suffix, and what follows them. None if it has more
/// than 64 bits.
fn scaled(text: &str) -> Option<(u64, &str)> {
    let (value, rest) = spaced(text).or_else(|| {
        let (value, rest) = pattern::number(text)?;
        Some((value?, rest))
    })?;
    let digits = rest.strip_prefix('.').map_or(0, |decimals| {
        decimals.bytes().take_while(u8::is_ascii_digit).count()
    });
    // With more decimals, or without a suffix, it is a number of something else.
    let (fraction, after) = match digits {
        1 | 2 => (rest[1..=digits].parse::<u64>().ok()?, &rest[digits + 1..]),
        _ => (0, rest),
    };
    let divisor = if digits == 1 { 10 } else { 100 };
    let scale = SCALES.iter().find_map(|(suffix, factor)| {
        let rest = after.strip_prefix(suffix)?;
        let goes_on = rest.starts_with(|next: char| next.is_ascii_alphanumeric());
        (!goes_on).then_some((*factor, rest))
    });
    let Some((factor, rest)) = scale else {
        return Some((value, rest));
    };
    let scaled = value.checked_mul(factor)?;
    Some((scaled.checked_add(fraction * factor / divisor)?, rest))
}

/// A number whose digits are grouped by spaces, and what follows it: `131 072`. The groups after the
/// first have three digits, and a word or a sign follows.
fn spaced(text: &str) -> Option<(u64, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let first = digits(text);
    let mut value: u64 = text[..first].parse().ok().filter(|_| first <= 3)?;
    let mut rest = &text[first..];
    let mut groups = 0;
    while let Some(group) = rest.strip_prefix(' ').filter(|group| digits(group) == 3) {
        value = value
            .checked_mul(1_000)?
            .checked_add(group[..3].parse().ok()?)?;
        rest = &group[3..];
        groups += 1;
    }
    let goes_on = rest.starts_with([',', '.', '_', '\'', '-'])
        && rest[1..].starts_with(|next: char| next.is_ascii_digit());
    (groups > 0 && value >= 1_000 && !goes_on).then_some((value, rest))
}

/// Whether what follows a number makes it part of a decimal, a date or a name. `8192tokens` is a
/// number and a word.
fn continues_a_name(rest: &str) -> bool {
    let is_digit = |next: char| next.is_ascii_digit();
    let is_letter = |next: char| next.is_ascii_alphabetic() || next == '_';
    rest.starts_with(is_digit)
        || rest
            .strip_prefix(['.', ',', '-'])
            .is_some_and(|rest| rest.starts_with(is_digit))
        || (rest.starts_with(is_letter) && !rest.starts_with("tok"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Token::{Number, Sign, Word};

    #[test]
    fn numbers_are_told_from_names_decimals_and_dates() {
        for (text, tokens) in [
            ("8,192", vec![Number(8_192)]),
            ("8.192 tokens", vec![Number(8_192), Word("tokens")]),
            ("128k-token", vec![Number(128_000), Word("token")]),
            ("2614tokens", vec![Number(2_614), Word("tokens")]),
            (
                "is2614tokens",
                vec![Word("is"), Number(2_614), Word("tokens")],
            ),
            ("to1 gpt2048", vec![Word("to1"), Word("gpt2048")]),
            ("32\u{2009}768", vec![Number(32_768)]),
            ("131 072 tokens", vec![Number(131_072), Word("tokens")]),
            ("1 048 576", vec![Number(1_048_576)]),
            ("4096 200", vec![Number(4_096), Number(200)]),
            ("of 1 9000", vec![Word("of"), Number(1), Number(9_000)]),
            ("(1m)", vec![Sign('('), Number(1_000_000), Sign(')')]),
            ("2.1m", vec![Number(2_100_000)]),
            ("1.05m", vec![Number(1_050_000)]),
            ("128 thousand", vec![Number(128_000)]),
            ("5 millionths", vec![Number(5), Word("millionths")]),
            ("1.5", vec![Word("1.5")]),
            ("2.1mb", vec![Word("2.1mb")]),
            ("9\u{ff08}", vec![Number(9), Sign('(')]),
            ("\u{2265} 5", vec![Sign('>'), Number(5)]),
            ("2024-05-13", vec![Word("2024-05-13")]),
            ("70b", vec![Word("70b")]),
            ("gpt-4o", vec![Word("gpt-4o")]),
            ("9000/8192", vec![Number(9_000), Sign('/'), Number(8_192)]),
            ("n_ctx=512", vec![Word("n_ctx"), Sign('='), Number(512)]),
            ("5%", vec![Number(5), Word("percent")]),
            ("model's", vec![Word("model's")]),
        ] {
            assert_eq!(read(text), tokens, "{text}");
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_a_word() {
        let text = "99999999999999999999";
        assert_eq!(read(text), [Word(text)]);
    }
}
