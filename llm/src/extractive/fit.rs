//! Choosing what fits: candidates with a rank compete for a room of tokens and come out in their own order.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::port::Measure;

use super::{text, work};

/// Most candidates that are held for one text: more than any sensible target can take (a line is about 8 tokens).
const MOST: usize = 4096;

/// Tokens, counted by the caller's measure.
#[derive(Clone, Copy)]
pub(crate) struct Scale<'a>(pub(crate) &'a Measure);

impl Scale<'_> {
    pub(crate) fn weigh(self, text: &str) -> u64 {
        work::tick(text.len());
        (self.0)(text).get()
    }

    /// The longest beginning of `text` that fits `room`, marked with an ellipsis where it was cut; may be empty.
    pub(crate) fn clip(self, text: &str, room: u64) -> String {
        // A token is seldom longer than 16 bytes; blanks are, and they are no loss.
        let text = text::head(text, usize::try_from(room.saturating_mul(16)).unwrap_or(usize::MAX).max(64));
        if self.weigh(text) <= room {
            return text.to_owned();
        }
        let (mut fits, mut over) = (0, text.chars().count());
        while over - fits > 1 {
            let middle = fits.midpoint(over);
            let cut = text::clip(text, middle);
            if self.weigh(&cut) <= room { fits = middle } else { over = middle }
        }
        let clipped = text::clip(text, fits).into_owned();
        if fits > 0 && self.weigh(&clipped) <= room {
            return clipped;
        }
        let bare = text::head(text, 1);
        [bare, "…", "."].into_iter().find(|short| self.weigh(short) <= room).unwrap_or_default().to_owned()
    }
}

/// A line that may stand in a digest.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Its place in the source.
    pub(crate) order: usize,
    /// How much it matters; higher is kept first.
    pub(crate) rank: f32,
    /// What would be written.
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
/// Least important first; of equals the later one is the less important.
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.total_cmp(&self.rank).then(self.order.cmp(&other.order))
    }
}

/// The best candidates of a stream of any length.
pub(crate) struct Best {
    heap: BinaryHeap<Candidate>,
    most: usize,
    seen: usize,
}

impl Best {
    /// As many as `room` tokens can take.
    pub(crate) fn for_room(room: u64) -> Self {
        Self::of(usize::try_from(room / 3).unwrap_or(MOST).clamp(16, MOST))
    }

    pub(crate) fn of(most: usize) -> Self {
        Self { heap: BinaryHeap::new(), most, seen: 0 }
    }

    /// Offers one candidate; its text is built only when it stands a chance.
    pub(crate) fn offer(&mut self, order: usize, rank: f32, text: impl FnOnce() -> String) {
        self.seen += 1;
        if self.heap.len() >= self.most {
            match self.heap.peek() {
                Some(worst) if rank <= worst.rank => return,
                _ => self.heap.pop(),
            };
        }
        self.heap.push(Candidate { order, rank, text: text() });
    }

    /// How many were offered.
    pub(crate) const fn seen(&self) -> usize {
        self.seen
    }

    /// Best first.
    pub(crate) fn into_ranked(self) -> Vec<Candidate> {
        self.heap.into_sorted_vec()
    }

    /// Those that fit `room` when each stands on its own line, in source order.
    pub(crate) fn fit(self, scale: Scale<'_>, room: u64) -> Vec<Candidate> {
        let mut left = room;
        let mut misses = 0;
        let mut kept = Vec::new();
        for candidate in self.into_ranked() {
            let cost = scale.weigh(&candidate.text) + 1;
            if cost <= left {
                left -= cost;
                kept.push(candidate);
            } else {
                misses += 1;
            }
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
    kept.iter().map(|candidate| candidate.text.as_str()).collect::<Vec<_>>().join("\n")
}
