//! Removes from a message what may quote a user, and prepares the rest: lower case, Chinese and
//! Japanese terms in English, the first sentences.

use super::tokens::is_word_char;

/// Bytes of a message that are read.
const MAX_BYTES: usize = 1_200;
/// Characters of the prepared text.
const MAX_CHARS: usize = 400;
/// Most characters of a quoted word that stays: the name of a field, a parameter or a model.
const MAX_NAME_CHARS: usize = 40;

/// Words before a colon that are followed by what a user has written.
const INTRODUCTIONS: &[&str] = &[
    "message",
    "content",
    "input",
    "text",
    "user",
    "wrote",
    "asked",
    "said",
    "says",
    "generation",
    "failed_generation",
    "prompt",
    "query",
    "value",
    "template",
    "result",
];

/// Words with which the text of a user or a tool begins after an equals sign: a number or a name
/// stands there otherwise.
const DETERMINERS: &[&str] = &["the", "this", "your", "my", "a", "an"];

/// Words before the colon of an introduction with which the provider introduces its own words.
const OWN_MESSAGES: &[&str] = &["error", "status"];

/// Words that end with a dot within a sentence.
const ABBREVIATIONS: &[&str] = &["max", "approx", "vs", "est", "incl", "e.g", "i.e", "ca"];

/// Most sentences that are read.
const SENTENCES: usize = 3;

/// Chinese and Japanese terms of error messages; a longer one before its parts.
#[rustfmt::skip]
const TERMS: &[(&str, &str)] = &[
    ("\u{4e0a}\u{4e0b}\u{6587}\u{7a97}\u{53e3}", " context window "),
    ("\u{4e0a}\u{4e0b}\u{6587}\u{957f}\u{5ea6}", " context length "),
    ("\u{4e0a}\u{4e0b}\u{6587}", " context window "),
    ("\u{89e3}\u{6790}", " parsing "),
    ("\u{8d85}\u{957f}", " too long "),
    ("\u{592a}\u{5927}", " too large "),
    ("\u{8fc7}\u{5927}", " too large "),
    ("\u{8fc7}\u{591a}", " too many "),
    ("\u{592a}\u{591a}", " too many "),
    ("\u{957f}\u{5ea6}", " length "),
    ("\u{6a21}\u{578b}", " model "),
    ("\u{652f}\u{6301}", " supports "),
    ("\u{7f29}\u{77ed}", " shorten "),
    ("\u{51cf}\u{5c11}", " reduce "),
    ("\u{5b9e}\u{9645}", " got "),
    ("\u{4e2a}", " "),
    ("\u{30b3}\u{30f3}\u{30c6}\u{30ad}\u{30b9}\u{30c8}", " context window "),
    ("\u{30d7}\u{30ed}\u{30f3}\u{30d7}\u{30c8}", " prompt "),
    ("\u{30c8}\u{30fc}\u{30af}\u{30f3}", " tokens "),
    ("\u{5165}\u{529b}", " input "),
    ("\u{51fa}\u{529b}", " output "),
    ("\u{8d85}\u{3048}", " exceeds "),
    ("\u{9577}\u{3059}\u{304e}", " too long "),
    ("\u{8d85}\u{8fc7}", " exceeds "),
    ("\u{8d85}\u{51fa}", " exceeds "),
    ("\u{5927}\u{4e8e}", " exceeds "),
    ("\u{8fc7}\u{957f}", " too long "),
    ("\u{592a}\u{957f}", " too long "),
    ("\u{8f93}\u{5165}", " input "),
    ("\u{63d0}\u{793a}\u{8bcd}", " prompt "),
    ("\u{63d0}\u{793a}", " prompt "),
    ("\u{6700}\u{5927}", " maximum "),
    ("\u{9650}\u{5236}", " limit "),
    ("\u{4e0a}\u{9650}", " limit "),
    ("\u{8bf7}\u{6c42}", " request "),
    ("\u{6d88}\u{606f}", " messages "),
    ("\u{5bf9}\u{8bdd}", " conversation "),
    ("\u{4ee4}\u{724c}", " tokens "),
    ("\u{5206}\u{949f}", " minute "),
    ("\u{989d}\u{5ea6}", " quota "),
    ("\u{4f59}\u{989d}", " balance "),
    ("\u{914d}\u{989d}", " quota "),
    ("\u{5b57}\u{7b26}", " characters "),
    ("\u{5b57}\u{8282}", " bytes "),
    ("\u{56fe}\u{7247}", " image "),
    ("\u{8f93}\u{51fa}", " output "),
    ("\u{6587}\u{4ef6}", " file "),
];

/// The message without JSON, quotations and what follows an introduction, in lower case. The name
/// in a quotation of one word stays.
pub(super) fn prepare(message: &str) -> String {
    let read = &message[..message.floor_char_boundary(MAX_BYTES)];
    let text = without_quotations(&without_json(read.trim())).to_lowercase();
    let mut text = before_introduction(&text).to_owned();
    if !text.is_ascii() {
        for (term, english) in TERMS {
            text = text.replace(term, english);
        }
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(end);
    }
    text
}

/// The first sentences of a text; any of them may be empty.
pub(super) fn first_sentences(text: &str) -> [&str; SENTENCES] {
    let mut rest = text;
    [(); SENTENCES].map(|()| {
        let (sentence, following) = split_sentence(rest);
        rest = following;
        sentence
    })
}

fn split_sentence(text: &str) -> (&str, &str) {
    let is_end = |at: usize, mark: char| match mark {
        '\n' | '\r' | '\u{3002}' => true,
        '.' | '!' | '?' => {
            let is_joint = |next: char| is_word_char(next) || next == '.';
            let word = text[..at].rsplit(|next| !is_joint(next)).next();
            text[at + 1..].starts_with(char::is_whitespace)
                && word.is_none_or(|word| !ABBREVIATIONS.contains(&word))
        }
        _ => false,
    };
    let end = text.char_indices().find(|(at, mark)| is_end(*at, *mark));
    end.map_or((text, ""), |(at, mark)| {
        (&text[..at], text[at + mark.len_utf8()..].trim_start())
    })
}

/// The text without the JSON in it: everything from its first bracket to the last one.
fn without_json(text: &str) -> String {
    let is_json = |at: usize| {
        let inner = text[at + 1..].trim_start();
        inner.starts_with(['"', '\'', '\\', '{', '['])
    };
    let mut brackets = text.match_indices(['{', '[']).map(|(at, _)| at);
    let Some(start) = brackets.find(|at| is_json(*at)) else {
        return text.to_owned();
    };
    let end = text.rfind(['}', ']']).filter(|end| *end > start);
    let rest = end.map_or("", |end| &text[end + 1..]);
    format!("{} {rest}", &text[..start])
}

fn without_quotations(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        // An apostrophe within a word opens nothing.
        let follows_word = at > 0 && chars[at - 1].is_alphanumeric();
        let Some(closing) = closing_mark(chars[at]).filter(|_| !follows_word) else {
            kept.push(chars[at]);
            at += 1;
            continue;
        };
        let mut end = quotation_end(&chars, at, closing);
        let inner = &chars[at + 1..end];
        let is_name = (1..=MAX_NAME_CHARS).contains(&inner.len())
            && !inner.iter().any(|next| next.is_whitespace());
        if is_name {
            kept.extend(inner);
        } else {
            kept.push(' ');
            // Its text may have such marks of its own, also where a quotation would end.
            let last = (end + 1..chars.len()).rfind(|at| chars[*at] == closing);
            end = last.unwrap_or(end);
        }
        at = end + 1;
    }
    kept
}

const fn closing_mark(opening: char) -> Option<char> {
    match opening {
        '"' | '`' | '\'' => Some(opening),
        '\u{2018}' => Some('\u{2019}'),
        '\u{201c}' => Some('\u{201d}'),
        _ => None,
    }
}

/// The place of the mark that closes the quotation at `start`, or the end of the text. A quotation
/// may hold others with the same marks.
fn quotation_end(chars: &[char], start: usize, closing: char) -> usize {
    let mut depth = 1;
    for at in start + 1..chars.len() {
        if chars[at] != closing {
            continue;
        }
        let is_before_word = chars.get(at + 1).is_some_and(|next| next.is_alphanumeric());
        if !is_before_word {
            depth -= 1;
        } else if !chars[at - 1].is_alphanumeric() {
            depth += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

const fn is_digit(next: char) -> bool {
    next.is_ascii_digit()
}

/// The text before the first colon or equals sign that introduces a user's words.
fn before_introduction(text: &str) -> &str {
    let introduces = |at: usize| {
        let mut words = text[..at].rsplit(|next| !is_word_char(next));
        let word = words.next();
        let is_own = word == Some("message")
            && words
                .next()
                .is_some_and(|word| OWN_MESSAGES.contains(&word));
        let rest = &text[at + 1..];
        // "Input: 9000 tokens" gives a number.
        let may_be_number = matches!(word, Some("input" | "prompt" | "query"));
        let value = rest.trim_start();
        let after = value.trim_start_matches(is_digit);
        let is_number = may_be_number && after.len() < value.len() && !after.starts_with(':');
        rest.starts_with(char::is_whitespace)
            && !is_number
            && !is_own
            && word.is_some_and(|word| INTRODUCTIONS.contains(&word))
    };
    let assigns_text = |at: usize| {
        let value = text[at + 1..].trim_start();
        let end = value.find(char::is_whitespace);
        end.is_some_and(|end| DETERMINERS.contains(&&value[..end]))
    };
    let mut marks = text.match_indices([':', '=']);
    let end = marks.find(|(at, mark)| {
        if *mark == ":" {
            introduces(*at)
        } else {
            assigns_text(*at)
        }
    });
    end.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_users_text_is_removed() {
        for (message, rest) in [
            ("Bad 'prompt is too long' here", "bad   here"),
            ("Bad \u{201c}the prompt\u{201d} here", "bad   here"),
            ("Bad `max_tokens` here", "bad max_tokens here"),
            ("the model's `max tokens` limit", "the model's   limit"),
            ("a 'b 'c' d' e", "a   e"),
            ("messages.3.content: too long", "messages.3.content"),
            ("the user wrote: too long", "the user wrote"),
            ("too much input: 9", "too much input: 9"),
            ("error message: too long", "error message: too long"),
            ("user message: too long", "user message"),
            ("Limit: 5", "limit: 5"),
            ("bad: {\"a\": [\"too long\"]} here", "bad:   here"),
            ("range [1, 8192]", "range [1, 8192]"),
            ("an 'open quotation", "an  "),
            ("bad 'the users' text has' here", "bad   here"),
            ("bad value: too long", "bad value"),
            ("invalid prompt: 3010: too long", "invalid prompt"),
            ("prompt: 9000 tokens", "prompt: 9000 tokens"),
            ("result = the text", "result "),
            ("limit=8192 prompt=9000 here", "limit=8192 prompt=9000 here"),
        ] {
            assert_eq!(prepare(message), rest, "{message}");
        }
        assert!(prepare(&"word ".repeat(1_000)).len() <= MAX_CHARS);
    }

    #[test]
    fn terms_of_other_languages_are_translated() {
        let words = |text: &str| {
            prepare(text)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            words("\u{8f93}\u{5165}\u{8fc7}\u{957f}, 9 \u{4e2a} token"),
            "input too long , 9 token"
        );
        assert_eq!(
            words("\u{4e0a}\u{4e0b}\u{6587}\u{957f}\u{5ea6}"),
            "context length"
        );
    }

    #[test]
    fn sentences_end_where_a_space_follows() {
        assert_eq!(
            first_sentences("max. 8.192 tokens. shorten it! or not. no"),
            ["max. 8.192 tokens", "shorten it", "or not"]
        );
        assert_eq!(first_sentences("the climax. b"), ["the climax", "b", ""]);
        assert_eq!(first_sentences("one"), ["one", "", ""]);
    }
}
