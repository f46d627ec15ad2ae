//! Prose in any script: cut into sentences, the telling ones kept in their order, on one line.

use rustc_hash::FxHashSet;

use super::{
    fit::{Best, Candidate, Scale},
    terms::{Focus, Frequencies, Signals},
    text::{self, extends, is_southeast},
    work,
};

/// A sentence is cut here at the latest, in characters.
const LONGEST: usize = 400;
/// From here on a comma, semicolon or space ends it.
const LONG: usize = 260;
/// From here on a space ends a sentence of a script that has no sentence marks.
const LONG_SOUTHEAST: usize = 60;
/// A line of at least this many characters may be one that was wrapped.
const WRAPPED: usize = 50;
/// Characters shown of a run without spaces that is no text (base64, a minified line).
const BLOB_SHOWN: usize = 48;
/// Distinct sentences remembered to leave out repetitions.
const REMEMBERED: usize = 1 << 16;

/// One sentence, or a piece of a text that has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentence<'a> {
    pub(crate) text: &'a str,
    /// Whether it begins a line.
    pub(crate) opens_line: bool,
    /// Characters of a run that is no text, of which `text` is the beginning.
    pub(crate) blob: Option<usize>,
}

impl Sentence<'_> {
    /// As one line.
    pub(crate) fn folded(&self) -> String {
        match self.blob {
            Some(chars) => format!("{}… ({chars})", text::head(self.text, BLOB_SHOWN)),
            None => text::fold(self.text),
        }
    }
}

/// The sentences of a text, in order; never longer than [`LONGEST`] characters and a few marks.
pub(crate) struct Sentences<'a> {
    rest: &'a str,
    opens_line: bool,
}

impl<'a> Sentences<'a> {
    pub(crate) const fn of(text: &'a str) -> Self {
        Self { rest: text, opens_line: true }
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
        Some(Sentence { text: found.trim_end(), opens_line, blob })
    }
}

/// Where the sentence at the start of `text` ends, and its length when it is a run that is no text.
fn end_of_sentence(text: &str) -> (usize, Option<usize>) {
    let mut chars = text.char_indices().peekable();
    let (mut count, mut in_line, mut spaced, mut last) = (0, 0, false, ' ');
    while let Some((at, c)) = chars.next() {
        count += 1;
        in_line += 1;
        let after = at + c.len_utf8();
        let next = chars.peek().map(|(_, next)| *next);
        match c {
            '\n' if in_line < WRAPPED || !goes_on_after(last, &text[after..]) => return (at, None),
            '\n' => in_line = 0,
            '。' | '！' | '？' | '｡' | '।' | '॥' | '؟' | '۔' | '።' => return (closed(text, after), None),
            '.' | '!' | '?' | '…' if ends_here(text, at, after) => return (closed(text, after), None),
            ',' | ';' | '，' | '；' | '、' | '،' if count > LONG && next != Some('\n') => return (after, None),
            c if c.is_whitespace() => {
                if count > LONG || count > LONG_SOUTHEAST && is_southeast(last) {
                    return (after, None);
                }
                spaced = true;
            }
            _ => {}
        }
        if count >= LONGEST && (!next.is_some_and(extends) || count > LONGEST + 32) {
            if spaced || !text.is_char_boundary(BLOB_SHOWN) || !text[..BLOB_SHOWN].bytes().all(is_blob) {
                return (after, None);
            }
            let run = text.bytes().position(|b| !is_blob(b)).unwrap_or(text.len());
            return if run > after { (run, Some(run)) } else { (after, None) };
        }
        last = c;
    }
    (text.len(), None)
}

/// Whether a long line that ended without a mark goes on in the next one, as hard-wrapped text does.
fn goes_on_after(last: char, next: &str) -> bool {
    let mut next = next.chars();
    let (first, second) = (next.next().unwrap_or('\n'), next.next().unwrap_or(' '));
    let begins = first.is_lowercase() || matches!(first, '`' | '"' | '(' | '_' | '*') && second.is_alphanumeric();
    begins && !matches!(last, '.' | ':' | ';' | '!' | '?' | '}' | '{' | ']')
}

const fn is_blob(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_')
}

/// Whether the mark at `at` ends a sentence: not inside a number, a name, or an abbreviation.
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
    let word = text[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let abbreviated =
        matches!(word, "Mr" | "Mrs" | "Ms" | "Dr" | "Prof" | "St" | "vs" | "No" | "Fig" | "Inc" | "Sr" | "Jr")
            || word.len() == 1 && word.bytes().all(|b| b.is_ascii_alphabetic());
    let goes_on = next.find(|c| !c.is_whitespace() || *c == '\n').is_some_and(char::is_lowercase);
    // "1. item": the number belongs to what follows.
    let numbered = at < 4 && !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    !(abbreviated || goes_on || numbered)
}

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

fn closed(text: &str, after: usize) -> usize {
    let closers = text[after..].chars().take(16).take_while(|c| is_closer(*c));
    after + closers.map(char::len_utf8).sum::<usize>()
}

/// What a sentence loses for only announcing what follows it: "Here are the flights:".
pub(crate) fn announces(sentence: &Sentence<'_>) -> f32 {
    if sentence.text.ends_with([':', '：']) { 0.8 } else { 0.0 }
}

/// The rank of each sentence among its text.
fn rank(sentence: &Sentence<'_>, at: usize, signals: &Signals) -> f32 {
    if sentence.blob.is_some() {
        return 0.05;
    }
    let opening = match at {
        0 => 1.0,
        1 | 2 => 0.4,
        _ => 0.0,
    };
    let heading = if sentence.opens_line && sentence.text.starts_with('#') { 0.8 } else { 0.0 };
    let line = if sentence.opens_line { 0.2 } else { 0.0 };
    signals.weight() + opening + heading + line - announces(sentence)
}

/// The key sentences on one line, in source order, gaps marked; empty when nothing fits.
pub(crate) fn digest(text: &str, scale: Scale<'_>, room: u64, focus: &Focus) -> String {
    let mut frequencies = Frequencies::new();
    let mut total = 0;
    for sentence in Sentences::of(text).filter(|sentence| sentence.blob.is_none()) {
        frequencies.add(sentence.text);
        total += 1;
    }
    let mut best = Best::for_room(room);
    let mut seen = FxHashSet::default();
    for (at, sentence) in Sentences::of(text).enumerate() {
        if seen.len() < REMEMBERED && !seen.insert(sentence.text)
            || seen.contains(sentence.text) && seen.len() >= REMEMBERED
        {
            continue;
        }
        let closing = if at + 1 == total { 0.6 } else { 0.0 };
        let signals = Signals::read(sentence.text, &frequencies, focus);
        best.offer(at, rank(&sentence, at, &signals) + closing, || sentence.folded());
    }
    let first = Sentences::of(text).next();
    let kept = best.fit(scale, room);
    if kept.is_empty() {
        return first.map(|sentence| scale.clip(&sentence.folded(), room)).unwrap_or_default();
    }
    join(&kept)
}

/// Sentences on one line; an ellipsis where something between them was left out.
pub(crate) fn join(kept: &[Candidate]) -> String {
    let mut out = String::new();
    let mut before: Option<usize> = None;
    for candidate in kept {
        match before {
            Some(order) if order + 1 < candidate.order => out.push_str(" … "),
            Some(_) if text::joins_bare(&out) => {}
            Some(_) => out.push(' '),
            None => {}
        }
        out.push_str(&candidate.text);
        before = Some(candidate.order);
    }
    out
}
