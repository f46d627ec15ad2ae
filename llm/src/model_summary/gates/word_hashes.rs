//! Words as hashes. A word is a run of letters, digits, `_` and the vowel signs of Indic scripts,
//! or one character of a script without spaces.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::extractive::{text, work};

/// The hash of each word of the text, in order. Letter case and punctuation are ignored.
pub(super) fn word_hashes(text: &str) -> impl Iterator<Item = u64> {
    // Unit tests count the bytes that are read, to check that the work is linear.
    work::tick(text.len());
    let mut chars = text.chars().peekable();
    std::iter::from_fn(move || {
        let is_wide = |c: char| text::is_cjk(c) || text::is_southeast_asian(c);
        let is_word_char = |c: char| c.is_alphanumeric() || c == '_' || text::is_indic_mark(c);
        while chars
            .next_if(|c| !is_wide(*c) && !is_word_char(*c))
            .is_some()
        {}
        let first = chars.next()?;
        let mut hasher = FxHasher::default();
        hash(&mut hasher, first);
        if !is_wide(first) {
            while let Some(c) = chars.next_if(|c| is_word_char(*c) && !is_wide(*c)) {
                hash(&mut hasher, c);
            }
        }
        Some(hasher.finish())
    })
}

fn hash(hasher: &mut FxHasher, c: char) {
    if c.is_ascii() {
        hasher.write_u32(u32::from(c.to_ascii_lowercase()));
    } else {
        c.to_lowercase()
            .for_each(|c| hasher.write_u32(u32::from(c)));
    }
}

/// The hash of each run of `N` adjacent words.
pub(super) fn shingles<const N: usize>(
    word_hashes: impl Iterator<Item = u64>,
) -> impl Iterator<Item = u64> {
    let mut last = [0_u64; N];
    word_hashes.enumerate().filter_map(move |(at, word)| {
        last.rotate_left(1);
        last[N - 1] = word;
        (at + 1 >= N).then(|| {
            let mut hasher = FxHasher::default();
            for word in last {
                hasher.write_u64(word);
            }
            hasher.finish()
        })
    })
}
