//! Stepped cooling. A swap changes the context, so the provider's prefix cache loses everything
//! after the swapped message. Therefore swaps wait until they save 2,000 tokens in each call and
//! sending the originals has cost half as much as the swap would. A swap that costs nothing does
//! not wait. A swap replaces all cool large messages that have a summary, together in one step.
//!
//! The decision needs no forecast and no state of its own: it follows from stored rows. On real
//! transcripts at Anthropic's prices, model calls cost at most 9 % more than with an oracle that
//! knows the future. The cache breaks about a third as often as with strict cooling
//! (`docs/performance.md`).

use crate::{message::MessageId, model::Prices, tokens::Tokens};

/// The share of the swap's cost that sending the originals may reach before the swap. With half or
/// double this share, calls cost more at Anthropic's prices (`docs/performance.md`).
const WAITING_SHARE: f64 = 0.5;
/// Fewest tokens that a step must save in each call. On conversations that were not used to choose
/// it, calls cost at most 9 % more than with an oracle; with 3,000 tokens, at most 12 %
/// (`docs/performance.md`).
const MIN_SAVED: Tokens = Tokens::new(2_000);

/// A large cool message that has a summary but is still sent as its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: MessageId,
    /// Tokens that its summary saves in each call.
    pub saved: Tokens,
    /// Model calls since the message became cool.
    pub calls: u64,
}

/// The cost of a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapCost {
    /// Tokens that the last call sent after the oldest candidate, and that the provider must write
    /// to its cache again. Candidates among them count with the size of their summaries.
    pub rewritten: Tokens,
    /// The provider's prices for cached input.
    pub prices: Prices,
    /// Whether the swap costs nothing, because the prefix breaks anyway, the cache is cold, or the
    /// context would exceed its budget.
    pub free: bool,
}

/// Whether to swap all candidates in the next context.
pub fn step_is_due(candidates: &[Candidate], cost: &SwapCost) -> bool {
    if candidates.is_empty() {
        return false;
    }
    if cost.free {
        return true;
    }
    let saved: Tokens = candidates.iter().map(|candidate| candidate.saved).sum();
    // Cost and limit are in tokens at the price of a cached read. `rho` says how many of those it
    // costs more to write a token to the cache than to read it.
    let waiting_cost: f64 = candidates
        .iter()
        .map(|candidate| candidate.saved.get() as f64 * candidate.calls as f64)
        .sum();
    let waiting_limit = WAITING_SHARE * cost.prices.rho() * cost.rewritten.get() as f64;
    waiting_cost >= waiting_limit && saved >= MIN_SAVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(saved: u64, calls: u64) -> Candidate {
        Candidate {
            id: MessageId(1),
            saved: Tokens::new(saved),
            calls,
        }
    }

    fn cost(rewritten: u64) -> SwapCost {
        SwapCost {
            rewritten: Tokens::new(rewritten),
            prices: Prices::default(),
            free: false,
        }
    }

    #[test]
    fn a_swap_waits_until_the_originals_have_cost_half_as_much_as_it() {
        // rho is 11.5, so 0.5 * 11.5 * 10,000 = 57,500 = 4,000 * 14.375.
        assert!(!step_is_due(&[candidate(4_000, 14)], &cost(10_000)));
        assert!(step_is_due(&[candidate(4_000, 15)], &cost(10_000)));
        assert!(step_is_due(
            &[candidate(2_000, 15), candidate(2_000, 14)],
            &cost(10_000)
        ));
    }

    #[test]
    fn a_swap_that_saves_less_than_two_thousand_tokens_waits() {
        assert!(!step_is_due(&[candidate(1_999, 1_000)], &cost(10)));
        assert!(step_is_due(&[candidate(2_000, 1_000)], &cost(10)));
    }

    #[test]
    fn a_swap_that_costs_nothing_does_not_wait() {
        assert!(step_is_due(
            &[candidate(1, 0)],
            &SwapCost {
                free: true,
                ..cost(1_000_000)
            }
        ));
        assert!(!step_is_due(
            &[],
            &SwapCost {
                free: true,
                ..cost(0)
            }
        ));
    }

    #[test]
    fn expensive_cache_writes_and_cheap_reads_make_swaps_wait_longer() {
        // rho is 49, so 0.5 * 49 * 10,000 = 245,000 = 4,000 * 61.25.
        let costly_writes = SwapCost {
            prices: Prices {
                cached: 20,
                write: 1_000,
            },
            ..cost(10_000)
        };
        assert!(!step_is_due(&[candidate(4_000, 61)], &costly_writes));
        assert!(step_is_due(&[candidate(4_000, 62)], &costly_writes));
    }
}
