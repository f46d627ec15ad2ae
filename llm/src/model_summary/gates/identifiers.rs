//! Strings that a source lives on, by strict rules: what is named again and again and cannot be guessed.

use anneal_core::message::{Part, Role};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    extractive::{fit::Scale, work},
    port::{SourceBody, SummaryAsk},
};

use super::super::pieces::Piece;

/// Most strings that one text must keep.
const MOST: usize = 5;
/// Bytes of such a string.
const BYTES: std::ops::RangeInclusive<usize> = 4..=80;
/// It is named in so many texts, or …
const TEXTS: u32 = 2;
/// … so often at all.
const TIMES: u32 = 3;
/// Digits from which a number is an order, an account, a ticket, and not a count.
const LONG_NUMBER: usize = 6;

/// The identifiers that people or models have named themselves. What only programs and fetched pages say is nothing that
/// a summary could be made to hold.
pub(in super::super) struct Spoken<'a>(FxHashSet<&'a str>);

impl<'a> Spoken<'a> {
    /// The spoken identifiers of everything that is to be summarised.
    pub(in super::super) fn of(ask: &SummaryAsk<'a>) -> Self {
        let said = ask.sources.iter().filter(|source| matches!(source.role, Role::User | Role::Assistant));
        let said = said.flat_map(|source| {
            let (parts, digest) = match &source.body {
                SourceBody::Original(parts) => (parts.as_slice(), None),
                SourceBody::Digest(text) => (&[][..], Some(text.as_str())),
            };
            let of_part = |part: &'a Part| if let Part::Text { text } = part { Some(text.as_str()) } else { None };
            parts.iter().filter_map(of_part).chain(digest)
        });
        let before = ask.previous.into_iter().chain(ask.quoted.map(|quote| quote.text));
        Self(before.chain(said).flat_map(identifiers).collect())
    }
}

/// How often a string is named.
struct Named {
    first: usize,
    times: u32,
    texts: u32,
    last_text: usize,
}

/// The strings that must be in a text about this piece: at most five, at most `room` tokens together, spoken ones only,
/// those named in most texts first. Linear in the piece.
pub(in super::super) fn must_keep(piece: &Piece<'_>, spoken: &Spoken<'_>, scale: Scale<'_>, room: u64) -> Vec<String> {
    let mut named: FxHashMap<&str, Named> = FxHashMap::default();
    let mut at = 0;
    for (place, slice) in piece.slices.iter().enumerate() {
        for word in identifiers(slice.text()).filter(|word| spoken.0.contains(word)) {
            at += 1;
            let entry = named.entry(word).or_insert(Named { first: at, times: 0, texts: 0, last_text: usize::MAX });
            entry.times += 1;
            entry.texts += u32::from(entry.last_text != place);
            entry.last_text = place;
        }
    }
    let mut ranked: Vec<(&str, Named)> =
        named.into_iter().filter(|(_, named)| named.texts >= TEXTS || named.times >= TIMES).collect();
    ranked.sort_by_key(|(_, named)| (std::cmp::Reverse((named.texts, named.times)), named.first));
    let mut left = room;
    let mut kept = Vec::new();
    for (word, _) in ranked.into_iter().take(2 * MOST) {
        let tokens = scale.weigh(word) + 2;
        if tokens <= left && kept.len() < MOST {
            left -= tokens;
            kept.push(word.to_owned());
        }
    }
    kept
}

/// The identifiers in a text, in order.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    work::tick(text.len());
    let parts = |c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ',' | ';' | '|');
    text.split(parts).map(trimmed).filter(|word| BYTES.contains(&word.len()) && is_identifier(word))
}

/// The word without the punctuation around it.
fn trimmed(word: &str) -> &str {
    let word = word.trim_start_matches(['(', '[', '{', '*', '=', ':']);
    word.trim_end_matches(['.', ':', '!', '?', ')', ']', '}', '*', '=', '\\'])
}

/// Whether it is a path, an address on the web, a UUID, a ticket, a long number or an error's code.
fn is_identifier(word: &str) -> bool {
    is_url(word) || is_uuid(word) || is_ticket(word) || is_long_number(word) || is_error_code(word) || is_path(word)
}

fn is_url(word: &str) -> bool {
    let rest = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.contains('.') && rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Two or more names between slashes, the last of a file with its ending or all of a path from the root.
fn is_path(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+'))
    };
    let (rooted, rest) =
        word.strip_prefix("~/").or_else(|| word.strip_prefix('/')).map_or((false, word), |rest| (true, rest));
    let mut names = rest.split('/');
    let has_ending = rest.rsplit('/').next().and_then(|name| name.rsplit_once('.')).is_some_and(|(stem, ending)| {
        !stem.is_empty() && (1..=5).contains(&ending.len()) && ending.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    rest.contains('/')
        && (rooted || has_ending)
        && names.all(is_name)
        && rest.contains(|c: char| c.is_ascii_alphabetic())
}

fn is_uuid(word: &str) -> bool {
    let groups: Vec<&str> = word.split('-').collect();
    groups.len() == 5
        && groups
            .iter()
            .zip([8, 4, 4, 4, 12])
            .all(|(group, len)| group.len() == len && group.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `ABC-123`; not `UTF-8`, `SHA-256`, `ISO-8601`: names of standards are nobody's tickets.
fn is_ticket(word: &str) -> bool {
    const STANDARDS: [&str; 10] = ["UTF", "SHA", "ISO", "RFC", "AES", "MD", "GPT", "COVID", "HTTP", "CVE"];
    word.split_once('-').is_some_and(|(project, number)| {
        (2..=10).contains(&project.len())
            && project.bytes().all(|b| b.is_ascii_uppercase())
            && (1..=7).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
            && !STANDARDS.contains(&project)
    })
}

fn is_long_number(word: &str) -> bool {
    (LONG_NUMBER..=24).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit())
}

/// `E0502`, `ORA-00942`, `ECONNREFUSED`, `0x80070005`.
fn is_error_code(word: &str) -> bool {
    let digits = |text: &str, range: std::ops::RangeInclusive<usize>| {
        range.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let numbered = word.strip_prefix('E').is_some_and(|rest| digits(rest, 3..=5))
        || word.strip_prefix("TS").is_some_and(|rest| digits(rest, 4..=5))
        || word.strip_prefix("ORA-").is_some_and(|rest| digits(rest, 4..=5));
    let posix = ["ECONN", "ETIMED", "ENOENT", "EACCES", "EPIPE", "EADDR", "ENOTFOUND", "ENOSPC", "EPERM", "EEXIST"];
    let hex = word
        .strip_prefix("0x")
        .is_some_and(|rest| (6..=16).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit()));
    numbered || hex || (word.bytes().all(|b| b.is_ascii_uppercase()) && posix.iter().any(|name| word.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::{is_identifier, trimmed};

    #[test]
    fn identifiers_are_told_from_words_and_counts() {
        for word in [
            "llm/src/port.rs",
            "/etc/hosts",
            "~/notes/a.md",
            "https://example.org/a?b=1",
            "9f3c2a7e-1b2d-4c3e-8f90-a1b2c3d4e5f6",
            "OPS-1234",
            "4711000815",
            "E0502",
            "ORA-00942",
            "ECONNREFUSED",
            "0x80070005",
            "./a/b.rs",
        ] {
            assert!(is_identifier(word), "{word}");
        }
        for word in [
            "and/or",
            "1/2",
            "12/31/2026",
            "UTF-8",
            "SHA-256",
            "2026",
            "EVERYTHING",
            "e.g.",
            "v1.2.3",
            "well-known",
            "//",
            "/",
            "a/b/c",
            "2026-01-02",
            "https://",
            "E1",
            "--flag",
            "10,000",
        ] {
            assert!(!is_identifier(word), "{word}");
        }
        assert_eq!(trimmed("(src/a.rs)."), "src/a.rs");
    }
}
