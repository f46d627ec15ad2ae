//! A text that is a piece of its source.

use rustc_hash::FxHashMap;

use super::{
    super::pieces::Piece,
    units::{shingles, units},
};

/// Words of a run that counts as copied.
const RUN: usize = 8;

/// Fewer runs are a sentence or two, which may well be quoted.
const LEAST_RUNS: usize = 24;

/// Only of a source that is this many times longer can the text not be most of what there is to say.
const LONGER: usize = 4;

/// The text is a copy when so many hundredths of its runs stand in the source. Whole sentences of 20 words, picked here
/// and there, reach 65: the runs across their seams are new.
const COPIED_PERCENT: usize = 90;

/// Whether nearly everything in the text is copied from what was said. Summaries may be copied from: their words were
/// chosen once, and merging keeps them.
pub(super) fn is(text: &str, piece: &Piece<'_>) -> bool {
    let mut runs: FxHashMap<u64, bool> = shingles::<RUN>(units(text)).map(|run| (run, false)).collect();
    if runs.len() < LEAST_RUNS {
        return false;
    }
    let mut source = 0;
    let first_hand = piece.slices.iter().filter(|slice| slice.item.kind.is_first_hand());
    // One stream: a passage may go over several messages.
    for run in shingles::<RUN>(first_hand.flat_map(|slice| units(slice.text())).inspect(|_| source += 1)) {
        runs.entry(run).and_modify(|copied| *copied = true);
    }
    let copied = runs.values().filter(|copied| **copied).count();
    source >= runs.len() * LONGER && copied * 100 >= runs.len() * COPIED_PERCENT
}
