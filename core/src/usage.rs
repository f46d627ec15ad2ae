//! A provider's usage report of one model call. It shows whether the provider's cache held what was
//! expected, and how its token counts compare with ours.

use crate::{cache::BreakReason, tokens::Tokens};

/// A usage report of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// All input tokens that the provider counted, including cached and written ones.
    pub input: Tokens,
    /// Input tokens read from the provider's cache.
    pub cached: Tokens,
    /// Input tokens written to the provider's cache.
    pub written: Tokens,
    /// Of `written`: written to a cache of an hour.
    pub long_written: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Tokens that BuildContext counted for the same input; zero if not given.
    pub context: Tokens,
    /// Tokens that BuildContext expected in the cache; zero for none.
    pub expected_cached: Tokens,
    /// Why less than the last call's context was expected in the cache; None: nothing broke, or the
    /// reason was not given.
    pub break_reason: Option<BreakReason>,
}

/// Whether the provider's cache held what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Fewer than 1,024 tokens were expected to be cached, and no change of the context is the
    /// cause. The cache may have expired.
    NothingExpected,
    /// At least half of the expected tokens came from the cache.
    Warm,
    /// Less than half of the expected tokens came from the cache, although no change of the context
    /// had broken it.
    Cold,
    /// A change of the context broke the cache: nothing, or less than half of the context, was
    /// expected.
    ColdByUs,
}

/// Shortest prefix that providers cache, in tokens.
const MIN_CACHED: Tokens = Tokens::new(1_024);
/// Shortest context that calibrates a ratio, in tokens. In shorter ones the provider's own
/// additions dominate.
const MIN_CONTEXT: Tokens = Tokens::new(256);
/// Plausible ratios. A ratio outside has another cause than the tokenizer: tools, pictures, or the
/// report of another conversation.
const RATIOS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

impl Usage {
    /// Whether the provider's cache held what was expected.
    pub fn cache_state(&self) -> CacheState {
        // After a pause nothing has changed: the cache has expired.
        let is_changed = self
            .break_reason
            .is_some_and(|reason| reason != BreakReason::Idle);
        if is_changed && self.expects_less_than_half() {
            return CacheState::ColdByUs;
        }
        if self.expected_cached < MIN_CACHED {
            return CacheState::NothingExpected;
        }
        let expected = self.expected_cached.get() as f64 * self.ratio().unwrap_or(1.0);
        if self.cached.get() as f64 * 2.0 >= expected {
            CacheState::Warm
        } else {
            CacheState::Cold
        }
    }

    /// Whether less than half of a context was expected in the cache that is long enough for it.
    fn expects_less_than_half(&self) -> bool {
        let context = if self.context == Tokens::ZERO {
            self.input
        } else {
            self.context
        };
        context >= MIN_CACHED && self.expected_cached.get().saturating_mul(2) < context.get()
    }

    /// The provider's tokens for each token counted here; None if the report does not allow an
    /// estimate.
    pub fn ratio(&self) -> Option<f64> {
        if self.context < MIN_CONTEXT {
            return None;
        }
        let ratio = self.input.get() as f64 / self.context.get() as f64;
        RATIOS.contains(&ratio).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, context: u64, expected: u64) -> Usage {
        let tokens = Tokens::new;
        Usage {
            input: tokens(input),
            cached: tokens(cached),
            context: tokens(context),
            expected_cached: tokens(expected),
            ..Usage::default()
        }
    }

    #[test]
    fn a_cache_that_gives_less_than_half_of_what_it_should_hold_is_cold() {
        assert_eq!(
            usage(10_000, 4_500, 10_000, 9_000).cache_state(),
            CacheState::Warm
        );
        assert_eq!(
            usage(10_000, 4_499, 10_000, 9_000).cache_state(),
            CacheState::Cold
        );
        assert_eq!(
            usage(12_000, 4_500, 10_000, 9_000).cache_state(),
            CacheState::Cold,
            "9,000 of our tokens are 10,800 of the provider's"
        );
        assert_eq!(
            usage(10_000, 0, 10_000, 1_023).cache_state(),
            CacheState::NothingExpected
        );
    }

    #[test]
    fn a_call_is_cold_by_us_if_a_break_leaves_less_than_half_of_its_context() {
        let broken = |input, context, expected| {
            Usage {
                break_reason: Some(BreakReason::Swap),
                ..usage(input, expected, context, expected)
            }
            .cache_state()
        };
        assert_eq!(broken(10_000, 10_000, 4_999), CacheState::ColdByUs);
        assert_eq!(broken(10_000, 10_000, 0), CacheState::ColdByUs);
        assert_eq!(broken(10_000, 0, 0), CacheState::ColdByUs);
        assert_eq!(broken(10_000, 10_000, 5_000), CacheState::Warm);
        assert_eq!(
            broken(1_023, 1_023, 0),
            CacheState::NothingExpected,
            "too short to be cached"
        );
    }

    #[test]
    fn after_a_pause_a_call_is_cold_only_if_the_cache_should_still_hold_its_beginning() {
        let idle = |cached, expected| {
            Usage {
                break_reason: Some(BreakReason::Idle),
                ..usage(10_000, cached, 10_000, expected)
            }
            .cache_state()
        };
        assert_eq!(idle(0, 0), CacheState::NothingExpected);
        assert_eq!(idle(2_000, 2_000), CacheState::Warm, "the system prompt");
        assert_eq!(idle(0, 2_000), CacheState::Cold);
    }

    #[test]
    fn a_report_gives_a_ratio_unless_its_context_is_short_or_the_ratio_implausible() {
        assert_eq!(usage(1_200, 0, 1_000, 0).ratio(), Some(1.2));
        assert_eq!(usage(1_200, 0, 255, 0).ratio(), None);
        assert_eq!(
            usage(9_000, 0, 1_000, 0).ratio(),
            None,
            "pictures or tools that are not counted here"
        );
        assert_eq!(usage(1_200, 0, 0, 0).ratio(), None);
    }
}
