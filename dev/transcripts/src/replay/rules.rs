//! The rules that decide when to swap, as pure functions of a conversation.

use super::{
    counted_conversation::CooledConversation,
    meter::{CacheLimits, CacheUsage, Meter},
    prices::Prices,
};

/// A rule that decides when large messages are swapped for their summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Never swaps.
    None,
    /// Swaps every message as soon as it is cool.
    Strict,
    /// Swaps all cool messages when waiting has cost half as much as swapping would, and the swap
    /// saves at least 2,000 tokens.
    Stepped,
}

/// A swap is due when waiting for it has cost at least this share of what the swap costs.
const MIN_WAITING_SHARE: f64 = 0.5;
/// Fewest tokens that a swap must save.
const MIN_SAVED: u64 = 2_000;

impl Rule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::None, Self::Strict, Self::Stepped];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
            Self::Stepped => "stepped",
        }
    }

    /// For each call, how many of the large messages are swapped.
    pub fn schedule(self, conversation: &CooledConversation, prices: Prices) -> Vec<usize> {
        let mut swapped = 0;
        let calls = conversation.calls.iter().enumerate();
        calls
            .map(|(index, call)| {
                swapped = match self {
                    Self::None => 0,
                    Self::Strict => call.cool_count,
                    Self::Stepped
                        if call.cool_count > swapped
                            && is_due(conversation, index, swapped, prices) =>
                    {
                        call.cool_count
                    }
                    Self::Stepped => swapped,
                };
                swapped
            })
            .collect()
    }
}

/// Whether the cool messages are to be swapped now: waiting has already cost enough, and the swap
/// saves enough. Both costs are in the price of a cached token: each call that waits reads the
/// `saved` tokens of a candidate from the cache once more, and the swap writes the tokens behind
/// the first candidate again, at `rho` each.
fn is_due(conversation: &CooledConversation, call: usize, swapped: usize, prices: Prices) -> bool {
    let candidates = &conversation.large[swapped..conversation.calls[call].cool_count];
    let saved: u64 = candidates.iter().map(|large| large.saved).sum();
    let waiting_cost: u64 = candidates
        .iter()
        .map(|large| large.saved * (call - large.cool_from) as u64)
        .sum();
    let behind = conversation.behind_swap(call, swapped);
    let swap_cost = prices.rho() * behind as f64;
    saved >= MIN_SAVED && waiting_cost as f64 >= MIN_WAITING_SHARE * swap_cost
}

/// The usage that results from a schedule of swaps, with an ideal cache.
pub fn meter_schedule(conversation: &CooledConversation, schedule: &[usize]) -> CacheUsage {
    meter_with(CacheLimits::NONE, conversation, schedule)
}

/// The usage that results from a schedule of swaps, with a cache of these limits.
pub fn meter_with(
    limits: CacheLimits,
    conversation: &CooledConversation,
    schedule: &[usize],
) -> CacheUsage {
    let mut meter = Meter::with_limits(limits);
    for (call, swapped) in schedule.iter().enumerate() {
        meter.record_call(conversation.context(call, *swapped));
    }
    meter.usage()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{
        counted_conversation::{CoolingZone, CountedConversation, CountedMessage},
        prices::ANTHROPIC,
    };

    /// A user message of `large` tokens, and then this many calls of the model, each of which adds
    /// `behind` tokens.
    fn run(large: u64, behind: u64, calls: usize) -> CooledConversation {
        let answer = CountedMessage {
            tokens: behind,
            added: 0,
            turn: 1,
            is_answer: true,
            summary: None,
        };
        let mut messages = vec![CountedMessage {
            tokens: large,
            added: 0,
            turn: 1,
            is_answer: false,
            summary: None,
        }];
        messages.extend(vec![answer; calls]);
        let counted = CountedConversation {
            system: 0,
            messages,
        };
        counted.in_zone(CoolingZone {
            threshold: 1_000,
            turns: 5,
            calls: 2,
        })
    }

    #[test]
    fn strict_swaps_every_cool_message_and_none_swaps_nothing() {
        assert_eq!(
            Rule::Strict.schedule(&run(4_000, 10, 6), ANTHROPIC),
            [0, 0, 0, 1, 1, 1]
        );
        assert_eq!(Rule::None.schedule(&run(4_000, 10, 6), ANTHROPIC), [0; 6]);
    }

    #[test]
    fn stepped_waits_until_waiting_has_cost_half_of_the_swap() {
        // The message is cool from call 3 on. Its summary saves 3,600 of the 4,000 tokens, so at
        // call n waiting has cost 3,600 (n - 3). Behind the message are n - 1 answers of 900 + 4
        // tokens. Half of what rewriting them costs is 0.5 x 11.5 for each token.
        let due = |n: f64| 3_600.0 * (n - 3.0) >= 5.75 * 904.0 * (n - 1.0);
        assert!((4..100).all(|n| !due(f64::from(n))));
        assert_eq!(
            Rule::Stepped.schedule(&run(4_000, 900, 99), ANTHROPIC),
            [0; 99]
        );
        // With answers of 100 + 4 tokens: 3,600 (n - 3) >= 598 (n - 1) from n = 4 on.
        assert_eq!(
            Rule::Stepped.schedule(&run(4_000, 100, 7), ANTHROPIC),
            [0, 0, 0, 0, 1, 1, 1]
        );
    }

    #[test]
    fn stepped_does_not_swap_for_small_savings() {
        assert_eq!(
            Rule::Stepped.schedule(&run(2_222, 0, 9), ANTHROPIC)[8],
            1,
            "2,000 saved"
        );
        assert_eq!(
            Rule::Stepped.schedule(&run(2_221, 0, 9), ANTHROPIC)[8],
            0,
            "1,999 saved"
        );
    }
}
