//! Meters the calls of a conversation at a provider with a prefix cache that always contains the
//! context of the previous call. A call reads from it everything up to the first difference, if
//! that is not shorter than the shortest prefix that the cache keeps.

use serde::Serialize;

use super::prices::Prices;

/// A part of a context that either stays the same or changes as a whole: a message in its original
/// form or as its summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Equal for equal content.
    pub(crate) identity: u64,
    pub(crate) tokens: u64,
}

/// The tokens of a conversation's calls, and how many of them were cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CacheUsage {
    pub(crate) calls: u64,
    /// Tokens of all contexts.
    pub(crate) sent: u64,
    /// How many of these tokens were in the cache.
    pub(crate) cached: u64,
    /// Calls whose context did not begin with the complete context of the previous call.
    pub(crate) breaks: u64,
}

impl CacheUsage {
    /// The cost, in hundredths of the price of an uncached input token.
    pub(crate) fn units(self, prices: Prices) -> u64 {
        prices.cost(self.sent, self.cached)
    }

    /// The share of the tokens that were in the cache.
    pub(crate) fn hit(self) -> f64 {
        self.cached as f64 / self.sent.max(1) as f64
    }
}

impl std::ops::AddAssign for CacheUsage {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.sent += other.sent;
        self.cached += other.cached;
        self.breaks += other.breaks;
    }
}

/// The cache of one conversation. The default one is ideal: it keeps prefixes of any length.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Tokens of the shortest prefix that it keeps.
    shortest: u64,
    /// The context of the previous call.
    last: Vec<Piece>,
    usage: CacheUsage,
}

impl Meter {
    /// A cache that keeps no prefix of fewer tokens.
    pub(crate) fn with_shortest(shortest: u64) -> Self {
        Self {
            shortest,
            ..Self::default()
        }
    }

    /// Records a call with this context.
    pub(crate) fn record_call(&mut self, context: Vec<Piece>) {
        let shared = self
            .last
            .iter()
            .zip(&context)
            .take_while(|(last, now)| last == now)
            .count();
        self.usage.calls += 1;
        self.usage.sent += tokens(&context);
        let held = tokens(&context[..shared]);
        self.usage.cached += if held < self.shortest { 0 } else { held };
        self.usage.breaks += u64::from(shared < self.last.len());
        self.last = context;
    }

    /// The usage of all calls so far.
    pub(crate) fn usage(&self) -> CacheUsage {
        self.usage
    }
}

fn tokens(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.tokens).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece((identity, tokens): (u64, u64)) -> Piece {
        Piece { identity, tokens }
    }

    fn usage_of(calls: &[&[(u64, u64)]]) -> CacheUsage {
        let mut meter = Meter::default();
        for call in calls {
            meter.record_call(call.iter().copied().map(piece).collect());
        }
        meter.usage()
    }

    #[test]
    fn the_common_beginning_with_the_previous_call_is_cached() {
        let grown = usage_of(&[&[(1, 10), (2, 5)], &[(1, 10), (2, 5), (3, 7)]]);
        assert_eq!(
            grown,
            CacheUsage {
                calls: 2,
                sent: 37,
                cached: 15,
                breaks: 0
            }
        );
    }

    #[test]
    fn everything_from_a_change_on_is_written_again() {
        let swapped = usage_of(&[
            &[(1, 10), (2, 50), (3, 7)],
            &[(1, 10), (20, 5), (3, 7), (4, 1)],
        ]);
        assert_eq!(
            swapped,
            CacheUsage {
                calls: 2,
                sent: 67 + 23,
                cached: 10,
                breaks: 1
            }
        );
    }

    #[test]
    fn a_prefix_below_the_shortest_is_not_cached() {
        let mut meter = Meter::with_shortest(15);
        for end in 1..4 {
            meter.record_call((0..=end).map(|identity| piece((identity, 7))).collect());
        }
        // The first call sends two pieces of 7 tokens, which are too few to be cached.
        assert_eq!(meter.usage().cached, 21);
    }

    #[test]
    fn a_shortened_context_is_a_break_without_cost() {
        let cut = usage_of(&[&[(1, 10), (2, 5)], &[(1, 10)]]);
        assert_eq!(
            cut,
            CacheUsage {
                calls: 2,
                sent: 25,
                cached: 10,
                breaks: 1
            }
        );
    }
}
