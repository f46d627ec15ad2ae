//! Gate: the text is a passage of its source.

use rustc_hash::FxHashMap;

use super::{
    super::chunks::Chunk,
    word_hashes::{shingles, word_hashes},
};

/// Words in a run. A run that also occurs in the source counts as copied.
const RUN_WORDS: usize = 8;

/// Texts with fewer runs pass: one or two sentences may be a quotation.
const MIN_RUNS: usize = 24;

/// A text passes if its source is less than this many times as long: the text may then be most of
/// the source's content.
const MIN_SOURCE_RATIO: usize = 4;

/// Percentage of copied runs that makes a text a copy. A text of whole sentences of 20 words,
/// copied from different places, reaches only 65, because the runs that cross from one sentence to
/// the next are new.
const COPIED_PERCENT: usize = 90;

/// Whether nearly all of the text is copied from original messages. Copies from summaries are
/// allowed: a merge keeps their words.
pub(super) fn is_copied(text: &str, chunk: &Chunk<'_>) -> bool {
    let mut runs: FxHashMap<u64, bool> = shingles::<RUN_WORDS>(word_hashes(text))
        .map(|run| (run, false))
        .collect();
    if runs.len() < MIN_RUNS {
        return false;
    }
    let mut source_words = 0;
    let originals = chunk
        .slices
        .iter()
        .filter(|slice| slice.item.kind.is_original());
    // All messages form one stream, because a passage may cover several of them.
    for run in shingles::<RUN_WORDS>(
        originals
            .flat_map(|slice| word_hashes(slice.text()))
            .inspect(|_| source_words += 1),
    ) {
        runs.entry(run).and_modify(|copied| *copied = true);
    }
    let copied = runs.values().filter(|copied| **copied).count();
    source_words >= runs.len() * MIN_SOURCE_RATIO && copied * 100 >= runs.len() * COPIED_PERCENT
}
