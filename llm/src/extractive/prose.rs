//! Digest of prose in any script: its key sentences in order, on one line.

use rustc_hash::FxHashSet;

use super::{
    candidates::{Candidate, TopCandidates},
    terms::{Focus, Frequencies, Signals},
    text::{self, is_combining, is_southeast_asian},
    token_counter::TokenCounter,
    work,
};

/// Most characters of a sentence.
const MAX_SENTENCE_CHARS: usize = 400;
/// Characters after which a comma, semicolon or space ends a sentence.
const LONG_SENTENCE_CHARS: usize = 260;
/// Characters after which a space ends a sentence, in a script without sentence marks.
const LONG_SOUTHEAST_ASIAN_CHARS: usize = 60;
/// A line of at least this many characters may be hard-wrapped: its sentence may go on in the next
/// line.
const MIN_WRAPPED_CHARS: usize = 50;
/// Characters shown of a blob: a long run without spaces that is not readable text, such as base64.
const BLOB_CHARS: usize = 48;
/// Most distinct sentences remembered to leave out repetitions.
const MAX_REMEMBERED: usize = 1 << 16;

/// One sentence, or a part of a text without sentence marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentence<'a> {
    pub(crate) text: &'a str,
    /// Whether it begins a line.
    pub(crate) opens_line: bool,
    /// Length of a blob in characters; None for text.
    pub(crate) blob: Option<usize>,
}

impl Sentence<'_> {
    /// The sentence on one line; a blob as its beginning and length.
    pub(crate) fn folded(&self) -> String {
        match self.blob {
            Some(chars) => format!("{}… ({chars})", text::head(self.text, BLOB_CHARS)),
            None => text::fold(self.text),
        }
    }
}

/// The sentences of a text, in order. Each has at most [`MAX_SENTENCE_CHARS`] characters and a few
/// combining or closing marks, unless it is a blob.
pub(crate) struct Sentences<'a> {
    rest: &'a str,
    opens_line: bool,
}

impl<'a> Sentences<'a> {
    pub(crate) const fn of(text: &'a str) -> Self {
        Self {
            rest: text,
            opens_line: true,
        }
    }
}

impl<'a> Iterator for Sentences<'a> {
    type Item = Sentence<'a>;

    fn next(&mut self) -> Option<Sentence<'a>> {
        let body = self.rest.trim_start();
        let skipped = &self.rest[..self.rest.len() - body.len()];
        work::tick(skipped.len());
        if body.is_empty() {
            self.rest = body;
            return None;
        }
        let opens_line = self.opens_line || skipped.contains('\n');
        self.opens_line = false;
        let (end, blob) = end_of_sentence(body);
        work::tick(end);
        let (found, rest) = body.split_at(end);
        self.rest = rest;
        Some(Sentence {
            text: found.trim_end(),
            opens_line,
            blob,
        })
    }
}

/// The end of the sentence at the start of `text`, and its length in characters if it is a blob.
fn end_of_sentence(text: &str) -> (usize, Option<usize>) {
    let mut chars = text.char_indices().peekable();
    let (mut chars_read, mut chars_in_line, mut has_space, mut last) = (0, 0, false, ' ');
    while let Some((at, c)) = chars.next() {
        chars_read += 1;
        chars_in_line += 1;
        let after = at + c.len_utf8();
        let next = chars.peek().map(|(_, next)| *next);
        match c {
            '\n' if chars_in_line < MIN_WRAPPED_CHARS || !continues_after(last, &text[after..]) => {
                return (at, None);
            }
            '\n' => chars_in_line = 0,
            '。' | '！' | '？' | '｡' | '।' | '॥' | '؟' | '۔' | '።' => {
                return (after_closers(text, after), None);
            }
            '.' | '!' | '?' | '…' if ends_here(text, at, after) => {
                return (after_closers(text, after), None);
            }
            ',' | ';' | '，' | '；' | '、' | '،'
                if chars_read > LONG_SENTENCE_CHARS && next != Some('\n') =>
            {
                return (after, None);
            }
            c if c.is_whitespace() => {
                if chars_read > LONG_SENTENCE_CHARS
                    || chars_read > LONG_SOUTHEAST_ASIAN_CHARS && is_southeast_asian(last)
                {
                    return (after, None);
                }
                has_space = true;
            }
            _ => {}
        }
        // A cut before a combining mark would change the character. After 32 marks it is made all
        // the same.
        if chars_read >= MAX_SENTENCE_CHARS
            && (!next.is_some_and(is_combining) || chars_read > MAX_SENTENCE_CHARS + 32)
        {
            if has_space
                || !text.is_char_boundary(BLOB_CHARS)
                || !text[..BLOB_CHARS].bytes().all(is_blob_byte)
            {
                return (after, None);
            }
            // A blob is ASCII, so its length in bytes is its length in characters.
            let run = text
                .bytes()
                .position(|b| !is_blob_byte(b))
                .unwrap_or(text.len());
            return if run > after {
                (run, Some(run))
            } else {
                (after, None)
            };
        }
        last = c;
    }
    (text.len(), None)
}

/// Whether a long line without a sentence mark continues in the next one, as in hard-wrapped text.
fn continues_after(last: char, next: &str) -> bool {
    let mut next = next.chars();
    let (first, second) = (next.next().unwrap_or('\n'), next.next().unwrap_or(' '));
    let begins = first.is_lowercase()
        || matches!(first, '`' | '"' | '(' | '_' | '*') && second.is_alphanumeric();
    begins && !matches!(last, '.' | ':' | ';' | '!' | '?' | '}' | '{' | ']')
}

/// Whether a blob may hold this byte.
const fn is_blob_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_')
}

/// Whether the mark at `at` ends a sentence, and is not part of a number, a name or an
/// abbreviation.
fn ends_here(text: &str, at: usize, after: usize) -> bool {
    let mut next = text[after..].chars().skip_while(|c| is_closer(*c));
    match next.next() {
        None => return true,
        Some(c) if !c.is_whitespace() => return false,
        Some(_) => {}
    }
    if text.as_bytes()[at] != b'.' {
        return true;
    }
    let word = text[..at]
        .rsplit(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    let abbreviated = matches!(
        word,
        "Mr" | "Mrs" | "Ms" | "Dr" | "Prof" | "St" | "vs" | "No" | "Fig" | "Inc" | "Sr" | "Jr"
    ) || word.len() == 1 && word.bytes().all(|b| b.is_ascii_alphabetic());
    let goes_on = next
        .find(|c| !c.is_whitespace() || *c == '\n')
        .is_some_and(char::is_lowercase);
    // "1. item": the number belongs to the item.
    let numbered = at < 4 && !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    !(abbreviated || goes_on || numbered)
}

/// Whether the character may stand between the mark that ends a sentence and the next sentence.
const fn is_closer(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | ')'
            | ']'
            | '”'
            | '’'
            | '」'
            | '』'
            | '）'
            | '】'
            | '》'
            | '»'
            | '*'
            | '_'
            | '`'
            | '.'
            | '!'
            | '?'
            | '！'
            | '？'
            | '。'
            | '…'
    )
}

/// The end of the closing quotes, brackets and marks after a sentence mark.
fn after_closers(text: &str, after: usize) -> usize {
    let closers = text[after..].chars().take(16).take_while(|c| is_closer(*c));
    after + closers.map(char::len_utf8).sum::<usize>()
}

/// The rank that a sentence loses if it only announces the next ones: "Here are the flights:".
pub(crate) fn announcement_penalty(sentence: &Sentence<'_>) -> f32 {
    if sentence.text.ends_with([':', '：']) {
        0.8
    } else {
        0.0
    }
}

/// The rank of a sentence in its text.
fn rank(sentence: &Sentence<'_>, at: usize, signals: &Signals) -> f32 {
    if sentence.blob.is_some() {
        return 0.05;
    }
    let opening = match at {
        0 => 1.0,
        1 | 2 => 0.4,
        _ => 0.0,
    };
    let heading = if sentence.opens_line && sentence.text.starts_with('#') {
        0.8
    } else {
        0.0
    };
    let line = if sentence.opens_line { 0.2 } else { 0.0 };
    signals.weight() + opening + heading + line - announcement_penalty(sentence)
}

/// The key sentences on one line, in source order, with `…` where sentences are left out. If none
/// fits, the beginning of the first sentence.
pub(crate) fn digest(text: &str, counter: TokenCounter<'_>, budget: u64, focus: &Focus) -> String {
    let mut frequencies = Frequencies::new();
    let mut closing_sentence = 0;
    for (at, sentence) in Sentences::of(text).enumerate() {
        if sentence.blob.is_none() {
            frequencies.add(sentence.text);
            closing_sentence = at;
        }
    }
    let mut best = TopCandidates::for_budget(budget);
    let mut seen = FxHashSet::default();
    for (at, sentence) in Sentences::of(text).enumerate() {
        let is_new = if seen.len() < MAX_REMEMBERED {
            seen.insert(sentence.text)
        } else {
            !seen.contains(sentence.text)
        };
        if !is_new {
            continue;
        }
        let closing = if at == closing_sentence { 0.6 } else { 0.0 };
        let signals = Signals::read(sentence.text, &frequencies, focus);
        best.offer(at, rank(&sentence, at, &signals) + closing, || {
            sentence.folded()
        });
    }
    let first = Sentences::of(text).next();
    let kept = best.fit(counter, budget);
    if kept.is_empty() {
        return first
            .map(|sentence| counter.clip(&sentence.folded(), budget))
            .unwrap_or_default();
    }
    join(&kept)
}

/// The sentences on one line, with an ellipsis where sentences between them are left out.
pub(crate) fn join(kept: &[Candidate]) -> String {
    let mut out = String::new();
    let mut before: Option<usize> = None;
    for candidate in kept {
        match before {
            Some(order) if order + 1 < candidate.order => out.push_str(" … "),
            Some(_) if text::joins_without_space(&out) => {}
            Some(_) => out.push(' '),
            None => {}
        }
        out.push_str(&candidate.text);
        before = Some(candidate.order);
    }
    out
}

#[cfg(test)]
mod tests {
    use anneal_core::tokens::Tokens;

    use super::*;
    use crate::extractive::terms;

    #[test]
    fn the_last_sentence_that_is_remembered_is_kept_once() {
        let measure = |text: &str| Tokens::new(text.len().div_ceil(4) as u64);
        let mut sentences: Vec<String> =
            (1..MAX_REMEMBERED).map(|n| format!("Line {n}.")).collect();
        sentences.extend(["Payments are blocked.", "Payments are blocked."].map(String::from));
        let focus = terms::focus(Some("payments"));
        let kept = digest(&sentences.join("\n"), TokenCounter(&measure), 40, &focus);
        assert_eq!(kept.matches("Payments are blocked.").count(), 1, "{kept}");
    }
}
