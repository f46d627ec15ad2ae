//! Removes from a message what may quote a user, and prepares the rest: lower case, terms of other
//! languages in English, the first sentences.

use super::{languages::translate, tokens::is_word_char};

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

/// The message without JSON, quotations and what follows an introduction, in lower case. The name
/// in a quotation of one word stays.
pub(super) fn prepare(message: &str) -> String {
    let read = &message[..message.floor_char_boundary(MAX_BYTES)];
    let text = without_quotations(&without_json(read.trim()));
    let text = with_parted_sentences(&text).to_lowercase();
    let mut text = translate(before_introduction(&text));
    if let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(end);
    }
    text
}

/// The text with a space between two sentences that are joined: "the documentation.Request 9000".
fn with_parted_sentences(text: &str) -> String {
    let mut parted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((sentence, following)) = rest.split_once('.') {
        parted.push_str(sentence);
        parted.push('.');
        let word = following.find(|next: char| !next.is_ascii_alphabetic());
        let is_sentence = sentence.ends_with(|last: char| last.is_ascii_lowercase())
            && following.starts_with(|next: char| next.is_ascii_uppercase())
            && word.is_some_and(|end| following[end..].starts_with(' '));
        if is_sentence {
            parted.push(' ');
        }
        rest = following;
    }
    parted.push_str(rest);
    parted
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
            let is_apostrophe = chars[at] == '\u{2019}' && follows_word;
            kept.push(if is_apostrophe { '\'' } else { chars[at] });
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
        let is_complaint = text[..at].ends_with("too much text");
        let rest = &text[at + 1..];
        // "Input: 9000 tokens" gives a number.
        let may_be_number = matches!(word, Some("input" | "prompt" | "query"));
        let value = rest.trim_start();
        let after = value.trim_start_matches(is_digit);
        let is_number = may_be_number && after.len() < value.len() && !after.starts_with(':');
        rest.starts_with(char::is_whitespace)
            && !is_number
            && !is_own
            && !is_complaint
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
            ("too much text: 9", "too much text: 9"),
            ("more text: 9", "more text"),
            ("the model\u{2019}s limit", "the model's limit"),
            (
                "see there.Request 9 is long",
                "see there. request 9 is long",
            ),
            ("a torch.OutOfMemoryError: x", "a torch.outofmemoryerror: x"),
            ("limit=8192 prompt=9000 here", "limit=8192 prompt=9000 here"),
        ] {
            assert_eq!(prepare(message), rest, "{message}");
        }
        assert!(prepare(&"word ".repeat(1_000)).len() <= MAX_CHARS);
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
