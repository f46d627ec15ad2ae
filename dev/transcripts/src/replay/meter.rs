//! Meters the calls of a conversation at a provider with a prefix cache that always contains the
//! context of the previous call. A call reads from it everything up to the first difference, as far
//! as the cache keeps prefixes of that length.

use serde::Serialize;

use super::prices::{PLAIN_PRICE, Prices};

/// A part of a context that either stays the same or changes as a whole: a message in its original
/// form or as its summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Equal for equal content.
    pub identity: u64,
    /// With framing.
    pub tokens: u64,
}

/// The tokens of a conversation's calls, and how many of them were cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheUsage {
    /// Number of calls.
    pub calls: u64,
    /// Tokens of all contexts.
    pub sent: u64,
    /// How many of these tokens were in the cache.
    pub cached: u64,
    /// Tokens of contexts that were too short for the cache: neither read from it nor written.
    pub plain: u64,
    /// Calls whose context did not begin with the complete context of the previous call.
    pub breaks: u64,
}

impl CacheUsage {
    /// The cost, in hundredths of the price of an uncached input token.
    pub fn units(self, prices: Prices) -> u64 {
        prices.cost(self.sent - self.plain, self.cached) + self.plain * PLAIN_PRICE
    }

    /// The share of the tokens that were in the cache.
    pub fn hit(self) -> f64 {
        self.cached as f64 / self.sent.max(1) as f64
    }
}

impl std::ops::AddAssign for CacheUsage {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.sent += other.sent;
        self.cached += other.cached;
        self.plain += other.plain;
        self.breaks += other.breaks;
    }
}

/// The lengths of the prefixes that a cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Tokens of the shortest prefix.
    pub shortest: u64,
    /// The length is a multiple of this many tokens.
    pub step: u64,
}

impl CacheLimits {
    /// Any length.
    pub const NONE: Self = Self {
        shortest: 0,
        step: 1,
    };

    /// How many tokens of a prefix of so many tokens are kept.
    const fn keep(self, tokens: u64) -> u64 {
        if tokens < self.shortest {
            0
        } else {
            tokens / self.step * self.step
        }
    }
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self::NONE
    }
}

/// The cache of one conversation. The default one is ideal: it keeps prefixes of any length.
#[derive(Debug, Default)]
pub struct Meter {
    limits: CacheLimits,
    /// The context of the previous call.
    last: Vec<Piece>,
    usage: CacheUsage,
}

impl Meter {
    /// A cache with these limits.
    pub fn with_limits(limits: CacheLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Records a call with this context.
    pub fn record_call(&mut self, context: Vec<Piece>) {
        let shared = self
            .last
            .iter()
            .zip(&context)
            .take_while(|(last, now)| last == now)
            .count();
        let sent = tokens(&context);
        self.usage.calls += 1;
        self.usage.sent += sent;
        self.usage.cached += self.limits.keep(tokens(&context[..shared]));
        self.usage.plain += if sent < self.limits.shortest { sent } else { 0 };
        self.usage.breaks += u64::from(shared < self.last.len());
        self.last = context;
    }

    /// The usage of all calls so far.
    pub fn usage(&self) -> CacheUsage {
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
                ..CacheUsage::default()
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
                breaks: 1,
                ..CacheUsage::default()
            }
        );
    }

    #[test]
    fn a_prefix_below_the_shortest_is_not_cached() {
        let limits = CacheLimits {
            shortest: 15,
            ..CacheLimits::NONE
        };
        let mut meter = Meter::with_limits(limits);
        for end in 1..4 {
            meter.record_call((0..=end).map(|identity| piece((identity, 7))).collect());
        }
        // The first call sends two pieces of 7 tokens, which are too few to be cached.
        let usage = meter.usage();
        assert_eq!((usage.plain, usage.cached), (14, 21));
        let prices = Prices {
            name: "",
            cached: 10,
            written: 125,
        };
        assert_eq!(usage.units(prices), 14 * 100 + 21 * 125 + 21 * 10 + 7 * 125);
    }

    #[test]
    fn a_prefix_is_cached_in_whole_steps() {
        let limits = CacheLimits {
            shortest: 10,
            step: 4,
        };
        let mut meter = Meter::with_limits(limits);
        for identities in [0..2, 0..3] {
            meter.record_call(identities.map(|identity| piece((identity, 7))).collect());
        }
        assert_eq!(meter.usage().cached, 12);
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
                breaks: 1,
                ..CacheUsage::default()
            }
        );
    }
}
