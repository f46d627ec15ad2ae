//! The identifiers that a summary must keep letter by letter: strings that the dialogue names, that
//! the source of the call repeats, and that a reader could not guess.

use anneal_core::message::{Part, Role};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    extractive::{token_counter::TokenCounter, work},
    summarizer::{SourceBody, SummaryAsk},
};

use super::super::chunks::Chunk;

/// Most strings that one text must hold.
const MAX_STRINGS: usize = 5;
/// Length of such a string, in bytes.
const STRING_BYTES: std::ops::RangeInclusive<usize> = 4..=80;
/// An identifier is required if at least `MIN_TEXTS` texts name it, or if it is named at least
/// `MIN_TIMES` times in all.
const MIN_TEXTS: u32 = 2;
const MIN_TIMES: u32 = 3;
/// A number with at least this many digits is taken for an order, an account or a ticket, not for a
/// count.
const MIN_NUMBER_DIGITS: usize = 6;

/// The identifiers that people or models have named. Identifiers that only tools or fetched pages
/// name are never required: otherwise a page could force a string into the summary.
pub(in super::super) struct DialogueIdentifiers<'a>(FxHashSet<&'a str>);

impl<'a> DialogueIdentifiers<'a> {
    /// The identifiers in the dialogue of all sources, the previous summary and the quoted words.
    pub(in super::super) fn of(ask: &SummaryAsk<'a>) -> Self {
        let dialogue = ask
            .sources
            .iter()
            .filter(|source| matches!(source.role, Role::User | Role::Assistant));
        let dialogue = dialogue.flat_map(|source| {
            let (parts, cached_summary) = match &source.body {
                SourceBody::Original(parts) => (parts.as_slice(), None),
                SourceBody::CachedSummary(text) => (&[][..], Some(text.as_str())),
            };
            let of_part = |part: &'a Part| {
                if let Part::Text { text } = part {
                    Some(text.as_str())
                } else {
                    None
                }
            };
            parts.iter().filter_map(of_part).chain(cached_summary)
        });
        let before = ask
            .previous
            .into_iter()
            .chain(ask.quoted.map(|quote| quote.text));
        Self(before.chain(dialogue).flat_map(identifiers).collect())
    }
}

/// The occurrences of a string.
struct Occurrences {
    /// The number of its first occurrence, counted over the occurrences of all identifiers.
    first: usize,
    times: u32,
    /// The number of texts that name it.
    texts: u32,
    /// The index of the last text that names it.
    last_text: usize,
}

/// The strings that a text about this chunk must hold: at most [`MAX_STRINGS`] with together at
/// most `budget` tokens, all from the dialogue. Those that the most texts name come first. Linear
/// in the chunk.
pub(in super::super) fn must_keep(
    chunk: &Chunk<'_>,
    dialogue: &DialogueIdentifiers<'_>,
    counter: TokenCounter<'_>,
    budget: u64,
) -> Vec<String> {
    let mut named: FxHashMap<&str, Occurrences> = FxHashMap::default();
    let mut occurrence = 0;
    for (text_index, slice) in chunk.slices.iter().enumerate() {
        for word in identifiers(slice.text()).filter(|word| dialogue.0.contains(word)) {
            occurrence += 1;
            let entry = named.entry(word).or_insert(Occurrences {
                first: occurrence,
                times: 0,
                texts: 0,
                last_text: usize::MAX,
            });
            entry.times += 1;
            entry.texts += u32::from(entry.last_text != text_index);
            entry.last_text = text_index;
        }
    }
    let mut ranked: Vec<(&str, Occurrences)> = named
        .into_iter()
        .filter(|(_, named)| named.texts >= MIN_TEXTS || named.times >= MIN_TIMES)
        .collect();
    ranked.sort_by_key(|(_, named)| (std::cmp::Reverse((named.texts, named.times)), named.first));
    let mut left = budget;
    let mut kept = Vec::new();
    // A string that does not fit is skipped. The limit bounds the counting of tokens.
    for (word, _) in ranked.into_iter().take(2 * MAX_STRINGS) {
        // Two tokens for the quotes around it in the prompt.
        let tokens = counter.count(word) + 2;
        if tokens <= left && kept.len() < MAX_STRINGS {
            left -= tokens;
            kept.push(word.to_owned());
        }
    }
    kept
}

/// The identifiers in a text, in order.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    work::tick(text.len());
    let separates = |c: char| {
        !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ',' | ';' | '|')
    };
    text.split(separates)
        .map(trim_punctuation)
        .filter(|word| STRING_BYTES.contains(&word.len()) && is_identifier(word))
}

/// The word without the punctuation around it.
fn trim_punctuation(word: &str) -> &str {
    let word = word.trim_start_matches(['(', '[', '{', '*', '=', ':']);
    word.trim_end_matches(['.', ':', '!', '?', ')', ']', '}', '*', '=', '\\'])
}

/// Whether the word is a path, a URL, a UUID, a ticket, a long number or an error code.
fn is_identifier(word: &str) -> bool {
    is_url(word)
        || is_uuid(word)
        || is_ticket(word)
        || is_long_number(word)
        || is_error_code(word)
        || is_path(word)
}

fn is_url(word: &str) -> bool {
    let rest = word
        .strip_prefix("https://")
        .or_else(|| word.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        rest.contains('.') && rest.starts_with(|c: char| c.is_ascii_alphanumeric())
    })
}

/// Two or more names separated by slashes; the last has a file extension, or the path begins with
/// `/` or `~/`.
fn is_path(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+'))
    };
    let (rooted, rest) = word
        .strip_prefix("~/")
        .or_else(|| word.strip_prefix('/'))
        .map_or((false, word), |rest| (true, rest));
    let mut names = rest.split('/');
    let has_ending = rest
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .is_some_and(|(stem, ending)| {
            !stem.is_empty()
                && (1..=5).contains(&ending.len())
                && ending.starts_with(|c: char| c.is_ascii_alphabetic())
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

/// `ABC-123`; not well-known names such as `UTF-8`, `SHA-256` and `COVID-19`.
fn is_ticket(word: &str) -> bool {
    const WELL_KNOWN: [&str; 10] = [
        "UTF", "SHA", "ISO", "RFC", "AES", "MD", "GPT", "COVID", "HTTP", "CVE",
    ];
    word.split_once('-').is_some_and(|(project, number)| {
        (2..=10).contains(&project.len())
            && project.bytes().all(|b| b.is_ascii_uppercase())
            && (1..=7).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
            && !WELL_KNOWN.contains(&project)
    })
}

fn is_long_number(word: &str) -> bool {
    (MIN_NUMBER_DIGITS..=24).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit())
}

/// `E0502`, `ORA-00942`, `ECONNREFUSED`, `0x80070005`.
fn is_error_code(word: &str) -> bool {
    let digits = |text: &str, range: std::ops::RangeInclusive<usize>| {
        range.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let numbered = word
        .strip_prefix('E')
        .is_some_and(|rest| digits(rest, 3..=5))
        || word
            .strip_prefix("TS")
            .is_some_and(|rest| digits(rest, 4..=5))
        || word
            .strip_prefix("ORA-")
            .is_some_and(|rest| digits(rest, 4..=5));
    let posix = [
        "ECONN",
        "ETIMED",
        "ENOENT",
        "EACCES",
        "EPIPE",
        "EADDR",
        "ENOTFOUND",
        "ENOSPC",
        "EPERM",
        "EEXIST",
    ];
    let hex = word.strip_prefix("0x").is_some_and(|rest| {
        (6..=16).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit())
    });
    numbered
        || hex
        || (word.bytes().all(|b| b.is_ascii_uppercase())
            && posix.iter().any(|name| word.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::{is_identifier, trim_punctuation};

    #[test]
    fn identifiers_are_distinguished_from_words_and_counts() {
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
        assert_eq!(trim_punctuation("(src/a.rs)."), "src/a.rs");
    }
}
