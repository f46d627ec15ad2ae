//! Selects the lines of a digest: the candidates of highest rank that fit a token budget, in source
//! order.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::token_counter::TokenCounter;

/// Most candidates held for one text: about 32,000 tokens (a line has about 8), more than the
/// targets of summaries.
const MAX_CANDIDATES: usize = 4096;

/// A possible line of a digest.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Its place in the source: lines are written in this order.
    pub(crate) order: usize,
    /// Importance of the line. Lines of higher rank are kept first.
    pub(crate) rank: f32,
    /// The line.
    pub(crate) text: String,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
/// The greatest candidate is the one to drop first: it has the lowest rank, and among candidates of
/// equal rank it comes last in the source.
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .rank
            .total_cmp(&self.rank)
            .then(self.order.cmp(&other.order))
    }
}

/// The best candidates of a stream of any length.
pub(crate) struct TopCandidates {
    heap: BinaryHeap<Candidate>,
    /// Most candidates that are held.
    most: usize,
    /// Number of candidates that were offered.
    offered: usize,
}

impl TopCandidates {
    /// Holds one candidate for each three tokens of `budget`, because hardly any line costs less.
    /// At least 16, so that other lines remain if the best ones do not fit; at most
    /// [`MAX_CANDIDATES`].
    pub(crate) fn for_budget(budget: u64) -> Self {
        Self::with_limit(
            usize::try_from(budget / 3)
                .unwrap_or(MAX_CANDIDATES)
                .clamp(16, MAX_CANDIDATES),
        )
    }

    /// Holds `most` candidates.
    pub(crate) fn with_limit(most: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            most,
            offered: 0,
        }
    }

    /// Offers one candidate. Its text is built only if the candidate is held.
    pub(crate) fn offer(&mut self, order: usize, rank: f32, text: impl FnOnce() -> String) {
        self.offered += 1;
        if self.heap.len() >= self.most {
            match self.heap.peek() {
                Some(worst) if rank <= worst.rank => return,
                _ => self.heap.pop(),
            };
        }
        self.heap.push(Candidate {
            order,
            rank,
            text: text(),
        });
    }

    /// Number of candidates that were offered.
    pub(crate) const fn offered(&self) -> usize {
        self.offered
    }

    /// Best candidate first.
    pub(crate) fn into_ranked(self) -> Vec<Candidate> {
        self.heap.into_sorted_vec()
    }

    /// The best candidates that fit `budget` tokens, each on a line of its own, in source order. A
    /// candidate that does not fit is skipped.
    pub(crate) fn fit(self, counter: TokenCounter<'_>, budget: u64) -> Vec<Candidate> {
        let mut left = budget;
        let mut misses = 0;
        let mut kept = Vec::new();
        for candidate in self.into_ranked() {
            // One token for the line feed.
            let cost = counter.count(&candidate.text) + 1;
            if cost <= left {
                left -= cost;
                kept.push(candidate);
            } else {
                misses += 1;
            }
            // Hardly any line has fewer than three tokens. Ending after more than 64 candidates
            // that did not fit bounds the counting.
            if left < 3 || misses > 64 {
                break;
            }
        }
        kept.sort_by_key(|candidate| candidate.order);
        kept
    }
}

/// The candidates as lines.
pub(crate) fn lines(kept: &[Candidate]) -> String {
    kept.iter()
        .map(|candidate| candidate.text.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}
