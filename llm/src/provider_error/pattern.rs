//! Matches the pattern of a wording against the start of a message, and extracts its numbers.
//!
//! A pattern is the wording itself, without regard to case, with these placeholders:
//! - a space: any run of white space;
//! - `` ` ``: a quotation mark of any kind, or none;
//! - `'`: a straight or a curly apostrophe;
//! - `{_}`: white space, or none;
//! - `{,}`: one of `.`, `,`, `;` and `:`, or none;
//! - `{limit}`, `{prompt}`, `{output}`, `{n}`: a number, also after a word such as `about`. Of
//!   `{output}` only its presence is kept, of `{n}` nothing;
//! - `{word}`: a name, without white space and without `"`, `` ` ``, `<`, `>`, `{`, `}`;
//! - `{any}`: any text before the next part of the pattern, without line ends and without `"`;
//! - `{parts}`: a breakdown such as `831 in the messages, 3 in the output`, up to its `)`.

/// Most bytes that `{any}` matches.
const MAX_ANY_BYTES: usize = 200;
/// Most bytes that `{word}` matches: names of models and of fields.
const MAX_WORD_BYTES: usize = 160;
/// Most bytes of one label in `{parts}`.
const MAX_LABEL_BYTES: usize = 40;

/// The numbers in a message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The limit that the message names; None if it names none, or one beyond 64 bits.
    pub(super) limit: Option<u64>,
    /// The prompt as the message names it; in a breakdown, its first part that is input (messages
    /// without tools).
    pub(super) prompt: Option<u64>,
    /// The whole input: the prompt, or all input parts of a breakdown, tools included.
    pub(super) input: Option<u64>,
    /// Whether the message names output tokens, even if it names 0 of them.
    pub(super) with_output: bool,
}

/// The numbers in `text`, if `text` starts with `pattern` and ends a sentence there. If a limit or
/// a prompt was found, the end of a clause is enough.
pub(super) fn match_start(pattern: &str, text: &str) -> Option<Numbers> {
    let mut numbers = Numbers::default();
    let rest = walk(pattern, text, &mut numbers)?;
    let has_numbers = numbers.limit.is_some() || numbers.prompt.is_some();
    let ends = if has_numbers {
        ends_clause(rest)
    } else {
        ends_sentence(rest)
    };
    ends.then_some(numbers)
}

/// The rest of `text` after `pattern`. Writes the numbers that it finds to `numbers`.
fn walk<'t>(pattern: &str, text: &'t str, numbers: &mut Numbers) -> Option<&'t str> {
    let (mut pattern, mut text) = (pattern, text);
    while !pattern.is_empty() {
        let Some(placeholder) = pattern.strip_prefix('{') else {
            let until = pattern.find('{').unwrap_or(pattern.len());
            text = literal(&pattern[..until], text)?;
            pattern = &pattern[until..];
            continue;
        };
        let (name, after) = placeholder.split_once('}')?;
        pattern = after;
        text = match name {
            "_" => text.trim_start(),
            "," => text.strip_prefix(['.', ',', ';', ':']).unwrap_or(text),
            "word" => word(text)?,
            "any" => {
                let next_literal = &pattern[..pattern.find('{').unwrap_or(pattern.len())];
                &text[bytes_before(next_literal, text)?..]
            }
            "parts" => parts(text, numbers)?,
            _ => {
                let (value, rest) = number(after_approximation(text))?;
                match name {
                    "limit" => numbers.limit = value,
                    "prompt" => (numbers.prompt, numbers.input) = (value, value),
                    "output" => numbers.with_output = true,
                    _ => {}
                }
                rest
            }
        };
    }
    Some(text)
}

/// The rest of `text` after a literal part of the pattern.
fn literal<'t>(wording: &str, text: &'t str) -> Option<&'t str> {
    let mut text = text;
    for wanted in wording.chars() {
        text = match wanted {
            ' ' => Some(text.trim_start()).filter(|rest| rest.len() < text.len())?,
            '`' => text.strip_prefix(is_quote).unwrap_or(text),
            '\'' => text.strip_prefix(['\'', '\u{2019}'])?,
            _ => text.strip_prefix(|found: char| found.eq_ignore_ascii_case(&wanted))?,
        };
    }
    Some(text)
}

/// Bytes before the first occurrence of `wording`; None if there is none within
/// [`MAX_ANY_BYTES`], or a line end or `"` stands before it.
fn bytes_before(wording: &str, text: &str) -> Option<usize> {
    let candidates = text
        .char_indices()
        .take_while(|(offset, found)| *offset <= MAX_ANY_BYTES && !matches!(found, '\n' | '"'));
    candidates
        .map(|(offset, _)| offset)
        .find(|offset| literal(wording, &text[*offset..]).is_some())
}

/// The rest of `text` after a name.
fn word(text: &str) -> Option<&str> {
    let ends =
        |found: char| found.is_whitespace() || matches!(found, '"' | '`' | '<' | '>' | '{' | '}');
    let length = text.find(ends).unwrap_or(text.len());
    // The name does not include a closing apostrophe or the punctuation after it.
    let length = text[..length].trim_end_matches(['\'', ':', ',']).len();
    (1..=MAX_WORD_BYTES)
        .contains(&length)
        .then(|| &text[length..])
}

/// Reads a breakdown and returns the rest, which begins with its closing bracket. Parts labeled
/// completion or output are output; all others are input.
fn parts<'t>(text: &'t str, numbers: &mut Numbers) -> Option<&'t str> {
    let mut text = text;
    let mut input: Option<u64> = None;
    loop {
        let start = text.trim_start();
        let (value, rest) = number(after_approximation(literal("and ", start).unwrap_or(start)))?;
        let end = rest
            .find([',', ';', ')'])
            .filter(|end| *end <= MAX_LABEL_BYTES)?;
        let label = &rest[..end];
        if label.contains("completion") || label.contains("output") {
            numbers.with_output = true;
        } else {
            numbers.prompt = numbers.prompt.or(value);
            input = value
                .map(|value| input.unwrap_or(0).saturating_add(value))
                .or(input);
        }
        text = &rest[end..];
        if text.starts_with(')') {
            numbers.input = input;
            return Some(text);
        }
        text = &text[1..];
    }
}

/// The text after a word such as "about", which may stand before a number.
fn after_approximation(text: &str) -> &str {
    let rest = ["about ", "at least ", "approximately ", "~"]
        .iter()
        .find_map(|word| literal(word, text));
    rest.unwrap_or(text)
}

/// A number, with or without groups of three digits, and the rest. The number is None if it is too
/// large.
pub(super) fn number(text: &str) -> Option<(Option<u64>, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let leading = digits(text);
    if leading == 0 {
        return None;
    }
    let (mut value, mut rest) = (text[..leading].parse::<u64>().ok(), &text[leading..]);
    // A group is a separator and exactly three digits. Before the first group stand at most three
    // digits. So `8192, 3` and `8192,300` begin with the number 8192, and `1,204800` with 1.
    let group_start = |rest: &str| {
        let group = rest
            .strip_prefix([',', '.', '_', '\'', '\u{a0}', '\u{2009}', '\u{202f}'])
            .filter(|_| leading <= 3)?;
        (digits(group) == 3).then(|| rest.len() - group.len())
    };
    while let Some(start) = group_start(rest) {
        let added = rest[start..start + 3].parse::<u64>().ok();
        value = value
            .and_then(|value| value.checked_mul(1_000))
            .zip(added)
            .and_then(|(big, low)| big.checked_add(low));
        rest = &rest[start + 3..];
    }
    Some((value, rest))
}

const fn is_quote(found: char) -> bool {
    matches!(
        found,
        '`' | '\'' | '"' | '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}'
    )
}

/// Whether a clause may end here: a message that continues with other words is about something
/// else.
fn ends_clause(rest: &str) -> bool {
    let next = rest.chars().next();
    next.is_none_or(|next| {
        is_quote(next) || matches!(next, '.' | ',' | ';' | ':' | '!' | ')' | '\n' | '\r')
    }) || rest.starts_with(" (")
        || rest.starts_with(" - ")
}

/// Whether a sentence ends here. Required where the message names neither a limit nor a prompt,
/// because its wording alone proves less.
fn ends_sentence(rest: &str) -> bool {
    let after = rest
        .strip_prefix(is_quote)
        .unwrap_or(rest)
        .trim_start_matches(['.', '!']);
    let has_mark = after.len() < rest.len();
    after.is_empty()
        || after.starts_with(['\n', '\r'])
        || (has_mark && after.starts_with(|next: char| next == ' ' || is_quote(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_most(text: &str) -> Option<Numbers> {
        match_start("at most {limit} tokens", text)
    }

    fn limit(text: &str) -> Option<u64> {
        at_most(text).and_then(|numbers| numbers.limit)
    }

    #[test]
    fn numbers_are_read_however_their_digits_are_grouped() {
        for text in [
            "1048576",
            "1,048,576",
            "1.048.576",
            "1_048_576",
            "1'048'576",
            "about 1048576",
            "~1,048,576",
        ] {
            assert_eq!(
                limit(&format!("At most {text} tokens.")),
                Some(1_048_576),
                "{text}"
            );
        }
        let huge = at_most("at most 99999999999999999999 tokens");
        assert_eq!(
            huge,
            Some(Numbers::default()),
            "the wording matches, the number is too large"
        );
        assert_eq!(at_most("at most many tokens"), None);
        assert_eq!(
            match_start("[1, {limit}]", "[1, 2048]").and_then(|numbers| numbers.limit),
            Some(2_048)
        );
    }

    #[test]
    fn a_wording_must_start_the_message_and_end_with_its_clause() {
        assert_eq!(limit("at most 5 tokens, please"), Some(5));
        assert_eq!(limit("at  most 5\ntokens (of 6)"), Some(5));
        assert_eq!(at_most("You have at most 5 tokens"), None);
        assert_eq!(at_most("at most 5 tokens is what the user wrote"), None);
        assert!(match_start("too long", "Too long. Shorten it").is_some());
        for other in [
            "too long, he said",
            "too longish",
            "too long: 5",
            "too long ago",
        ] {
            assert_eq!(match_start("too long", other), None, "{other}");
        }
    }

    #[test]
    fn a_breakdown_separates_input_from_output() {
        let read = |text| {
            match_start("({parts})", text)
                .map(|found| (found.prompt, found.input, found.with_output))
        };
        assert_eq!(
            read("(831 in the messages, 3 in the completion)"),
            Some((Some(831), Some(831), true))
        );
        assert_eq!(
            read("(5,000 in the messages, 500 in the functions)"),
            Some((Some(5_000), Some(5_500), false))
        );
        assert_eq!(
            read("(10 of text input, 5 of tool input, and 2 in the output)"),
            Some((Some(10), Some(15), true))
        );
        for broken in ["()", "(5", "(5 in the messages", "(five)", "(5 in,)"] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    #[test]
    fn quotes_and_names_match_in_any_form() {
        for text in [
            "`max` of x",
            "'max' of y-1.5/z",
            "max of \u{201c}b\u{201d}",
            "\"max\" of c",
        ] {
            assert!(match_start("`max` of `{word}`", text).is_some(), "{text}");
        }
    }
}
