//! Matches one wording of a provider against the start of a message and takes the numbers out of it.
//!
//! A shape is the wording itself, upper and lower case alike, with these signs in it:
//! a space is any run of white space, `` ` `` is a quote of any kind or none, `{_}` is white space or none, `{,}` is a stop
//! or none; `{limit}`, `{prompt}`, `{output}` and `{n}` are numbers (`{n}` is not kept), `{word}` is a name without spaces,
//! `{any}` is whatever stands before what follows it, `{parts}` is a breakdown such as `831 in the messages, 3 in the output`.

/// Bytes that `{any}` may cover.
const ANY_BYTES: usize = 200;
/// Bytes that `{word}` may cover: names of models and of fields.
const WORD_BYTES: usize = 160;
/// Bytes of one label in `{parts}`.
const LABEL_BYTES: usize = 40;

/// What a shape found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The most that fits.
    pub(super) limit: Option<u64>,
    /// The prompt as the message names it; of a breakdown, its first part (the messages without tools).
    pub(super) prompt: Option<u64>,
    /// What the prompt takes in all, tools included.
    pub(super) input: Option<u64>,
    /// Whether the message names room for output.
    pub(super) with_output: bool,
}

/// The numbers in `text`, if it starts as `shape` says and its sentence or clause ends there.
pub(super) fn find(shape: &str, text: &str) -> Option<Numbers> {
    let mut numbers = Numbers::default();
    let rest = walk(shape, text, &mut numbers)?;
    let counted = numbers.limit.is_some() || numbers.prompt.is_some();
    let ends = if counted { ends_clause(rest) } else { ends_sentence(rest) };
    ends.then_some(numbers)
}

/// What is left of `text` after `shape`.
fn walk<'t>(shape: &str, text: &'t str, numbers: &mut Numbers) -> Option<&'t str> {
    let (mut shape, mut text) = (shape, text);
    while !shape.is_empty() {
        let Some(hole) = shape.strip_prefix('{') else {
            let until = shape.find('{').unwrap_or(shape.len());
            text = literal(&shape[..until], text)?;
            shape = &shape[until..];
            continue;
        };
        let (name, after) = hole.split_once('}')?;
        shape = after;
        text = match name {
            "_" => text.trim_start(),
            "," => text.strip_prefix(['.', ',', ';', ':']).unwrap_or(text),
            "word" => word(text)?,
            "any" => &text[skipped(&shape[..shape.find('{').unwrap_or(shape.len())], text)?..],
            "parts" => parts(text, numbers)?,
            _ => {
                let (value, rest) = number(about(text))?;
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

/// What is left of `text` after a piece of wording.
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

/// Bytes before the first place where `wording` stands.
fn skipped(wording: &str, text: &str) -> Option<usize> {
    let near = text.char_indices().take_while(|(at, found)| *at <= ANY_BYTES && !matches!(found, '\n' | '"'));
    near.map(|(at, _)| at).find(|at| literal(wording, &text[*at..]).is_some())
}

fn word(text: &str) -> Option<&str> {
    let ends = |found: char| found.is_whitespace() || matches!(found, '"' | '`' | '<' | '>' | '{' | '}');
    let length = text.find(ends).unwrap_or(text.len());
    // Names stand in apostrophes too, and the word must not eat the closing one.
    let length = text[..length].trim_end_matches(['\'', ':', ',']).len();
    (1..=WORD_BYTES).contains(&length).then(|| &text[length..])
}

/// Reads a breakdown up to its closing bracket: labels of completion and output are room for the answer, all else is input.
fn parts<'t>(text: &'t str, numbers: &mut Numbers) -> Option<&'t str> {
    let mut text = text;
    let mut input: Option<u64> = None;
    loop {
        let start = text.trim_start();
        let (value, rest) = number(about(literal("and ", start).unwrap_or(start)))?;
        let end = rest.find([',', ';', ')']).filter(|end| *end <= LABEL_BYTES)?;
        let label = &rest[..end];
        if label.contains("completion") || label.contains("output") {
            numbers.with_output = true;
        } else {
            numbers.prompt = numbers.prompt.or(value);
            input = value.map(|value| input.unwrap_or(0).saturating_add(value)).or(input);
        }
        text = &rest[end..];
        if text.starts_with(')') {
            numbers.input = input;
            return Some(text);
        }
        text = &text[1..];
    }
}

/// What is left after a word that softens a number.
fn about(text: &str) -> &str {
    let softened = ["about ", "at least ", "approximately ", "~"].iter().find_map(|word| literal(word, text));
    softened.unwrap_or(text)
}

/// A number and what is left: digits, in groups of three or not. None within for one that is too large to count.
fn number(text: &str) -> Option<(Option<u64>, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let first = digits(text);
    if first == 0 {
        return None;
    }
    let (mut value, mut rest) = (text[..first].parse::<u64>().ok(), &text[first..]);
    // Only after one to three digits: `8192, 3` are two numbers, and so are `[1,204800]`.
    let grouped = |rest: &str| {
        let group = rest.strip_prefix([',', '.', '_', '\'', '\u{a0}', '\u{202f}']).filter(|_| first <= 3)?;
        (digits(group) == 3).then(|| rest.len() - group.len())
    };
    while let Some(start) = grouped(rest) {
        let added = rest[start..start + 3].parse::<u64>().ok();
        value = value.and_then(|value| value.checked_mul(1_000)).zip(added).and_then(|(big, low)| big.checked_add(low));
        rest = &rest[start + 3..];
    }
    Some((value, rest))
}

const fn is_quote(found: char) -> bool {
    matches!(found, '`' | '\'' | '"' | '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}')
}

/// Whether a clause may end here: a message that goes on with other words was about something else.
fn ends_clause(rest: &str) -> bool {
    let next = rest.chars().next();
    next.is_none_or(|next| is_quote(next) || matches!(next, '.' | ',' | ';' | ':' | '!' | ')' | '\n' | '\r'))
        || rest.starts_with(" (")
        || rest.starts_with(" - ")
}

/// Whether a sentence ends here: wordings without numbers are short, and short wordings prove less.
fn ends_sentence(rest: &str) -> bool {
    let stop = rest.strip_prefix(is_quote).unwrap_or(rest).trim_start_matches(['.', '!']);
    let stopped = stop.len() < rest.len();
    stop.is_empty()
        || stop.starts_with(['\n', '\r'])
        || (stopped && stop.starts_with(|next: char| next == ' ' || is_quote(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_most(text: &str) -> Option<Numbers> {
        find("at most {limit} tokens", text)
    }

    fn limit(text: &str) -> Option<u64> {
        at_most(text).and_then(|numbers| numbers.limit)
    }

    #[test]
    fn numbers_are_read_however_their_digits_are_grouped() {
        for text in ["1048576", "1,048,576", "1.048.576", "1_048_576", "1'048'576", "about 1048576", "~1,048,576"] {
            assert_eq!(limit(&format!("At most {text} tokens.")), Some(1_048_576), "{text}");
        }
        let huge = at_most("at most 99999999999999999999 tokens");
        assert_eq!(huge, Some(Numbers::default()), "the wording stands, the number is nobody's");
        assert_eq!(at_most("at most many tokens"), None);
        assert_eq!(find("[1, {limit}]", "[1, 2048]").and_then(|numbers| numbers.limit), Some(2_048));
    }

    #[test]
    fn a_wording_stands_at_the_start_and_ends_where_its_clause_ends() {
        assert_eq!(limit("at most 5 tokens, please"), Some(5));
        assert_eq!(limit("at  most 5\ntokens (of 6)"), Some(5));
        assert_eq!(at_most("You have at most 5 tokens"), None);
        assert_eq!(at_most("at most 5 tokens is what the user wrote"), None);
        assert!(find("too long", "Too long. Shorten it").is_some());
        for other in ["too long, he said", "too longish", "too long: 5", "too long ago"] {
            assert_eq!(find("too long", other), None, "{other}");
        }
    }

    #[test]
    fn a_breakdown_parts_input_from_output() {
        let read = |text| find("({parts})", text).map(|found| (found.prompt, found.input, found.with_output));
        assert_eq!(read("(831 in the messages, 3 in the completion)"), Some((Some(831), Some(831), true)));
        assert_eq!(read("(5,000 in the messages, 500 in the functions)"), Some((Some(5_000), Some(5_500), false)));
        assert_eq!(read("(10 of text input, 5 of tool input, and 2 in the output)"), Some((Some(10), Some(15), true)));
        for broken in ["()", "(5", "(5 in the messages", "(five)", "(5 in,)"] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    #[test]
    fn quotes_and_names_are_taken_as_they_come() {
        for text in ["`max` of x", "'max' of y-1.5/z", "max of \u{201c}b\u{201d}", "\"max\" of c"] {
            assert!(find("`max` of `{word}`", text).is_some(), "{text}");
        }
    }
}
