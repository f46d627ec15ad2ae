//! Gate: the text is a passage of its source.

use rustc_hash::FxHashMap;

use super::{
    super::chunks::Chunk,
    word_hashes::{shingles, word_hashes},
};

/// Words of a run; a run that stands in the source counts as copied.
const RUN_WORDS: usize = 8;

/// Shorter texts pass: one or two sentences may be a quotation.
const MIN_RUNS: usize = 24;

/// Shorter sources pass: the text may be most of their content.
const MIN_SOURCE_RATIO: usize = 4;

/// Percent of a text's runs that make it a copy. Separate whole sentences of 20 words reach 65,
/// because the runs across their seams are new.
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
    let mut source = 0;
    let originals = chunk
        .slices
        .iter()
        .filter(|slice| slice.item.kind.is_original());
    // All messages form one stream, because a passage may cover several of them.
    for run in shingles::<RUN_WORDS>(
        originals
            .flat_map(|slice| word_hashes(slice.text()))
            .inspect(|_| source += 1),
    ) {
        runs.entry(run).and_modify(|copied| *copied = true);
    }
    let copied = runs.values().filter(|copied| **copied).count();
    source >= runs.len() * MIN_SOURCE_RATIO && copied * 100 >= runs.len() * COPIED_PERCENT
}
