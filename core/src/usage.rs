//! What a provider billed for one model call, and what that says: of its cache, and of the way it counts.

use crate::tokens::Tokens;

/// A report of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// All input that the provider counted, cached and written included.
    pub input: Tokens,
    /// Of it: read from its cache.
    pub cached: Tokens,
    /// Of it: written to its cache.
    pub written: Tokens,
    /// What the model wrote.
    pub output: Tokens,
    /// What BuildContext counted of what was sent; zero: not said.
    pub context: Tokens,
    /// What BuildContext expected the cache to hold; zero: nothing.
    pub expected_cached: Tokens,
}

/// What the provider's cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Nothing was expected to be cached.
    NothingExpected,
    /// At least half of what was expected came from the cache.
    Warm,
    /// Less did, though nothing of ours had broken it.
    Cold,
}

/// Providers cache no prefix shorter than this.
const LEAST_CACHED: Tokens = Tokens::new(1_024);
/// Contexts shorter than this say nothing of how a provider counts: its own additions outweigh them.
const LEAST_CONTEXT: Tokens = Tokens::new(256);
/// Ratios outside of this come from something else than tokenizers: tools, images, another conversation.
const RATIOS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

impl Usage {
    /// What the provider's cache did.
    pub fn cache_state(&self) -> CacheState {
        if self.expected_cached < LEAST_CACHED {
            return CacheState::NothingExpected;
        }
        let expected = self.expected_cached.get() as f64 * self.ratio().unwrap_or(1.0);
        if self.cached.get() as f64 * 2.0 >= expected { CacheState::Warm } else { CacheState::Cold }
    }

    /// The provider's tokens for each token counted here; None when the report does not tell.
    pub fn ratio(&self) -> Option<f64> {
        if self.context < LEAST_CONTEXT {
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
        assert_eq!(usage(10_000, 4_500, 10_000, 9_000).cache_state(), CacheState::Warm);
        assert_eq!(usage(10_000, 4_499, 10_000, 9_000).cache_state(), CacheState::Cold);
        assert_eq!(usage(12_000, 4_500, 10_000, 9_000).cache_state(), CacheState::Cold, "in the provider's tokens");
        assert_eq!(usage(10_000, 0, 10_000, 1_023).cache_state(), CacheState::NothingExpected);
    }

    #[test]
    fn a_report_calibrates_unless_it_is_short_or_out_of_all_proportion() {
        assert_eq!(usage(1_200, 0, 1_000, 0).ratio(), Some(1.2));
        assert_eq!(usage(1_200, 0, 255, 0).ratio(), None);
        assert_eq!(usage(9_000, 0, 1_000, 0).ratio(), None, "pictures, or tools that we know nothing of");
        assert_eq!(usage(1_200, 0, 0, 0).ratio(), None);
    }
}
