//! Stepped cooling: each swap breaks the provider's prefix cache behind it, so swaps wait until waiting has cost half of
//! what swapping costs, then all go together.
//!
//! No forecast, no hidden state: everything follows from rows. Measured on real transcripts within 3 to 8 % of an oracle
//! that knows the future, with a third of the cache breaks of swapping at once.

use crate::{message::MessageId, model::Prices, tokens::Tokens};

/// The share of the cost of a break that waiting may cost before the swap.
const RENT_SHARE: f64 = 0.5;
/// Tokens that a swap must save at least.
const LEAST_SAVED: Tokens = Tokens::new(3_000);

/// A large, summarised, cool message that is still sent as it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: MessageId,
    /// What its summary saves.
    pub saved: Tokens,
    /// Model calls since it became cool.
    pub calls: u64,
}

/// What a decision looks at beside the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stepped {
    /// Tokens behind the oldest candidate that the last call already sent, the candidates among them with their summaries'
    /// size: what the provider must write to its cache again.
    pub rewritten: Tokens,
    /// What the model's provider asks for cached input.
    pub prices: Prices,
    /// The prefix breaks anyway, or is cold: swapping costs nothing.
    pub free: bool,
}

/// Whether to swap all candidates in the next context.
pub fn decide(candidates: &[Candidate], stepped: &Stepped) -> bool {
    if candidates.is_empty() || stepped.free {
        return !candidates.is_empty();
    }
    let saved: Tokens = candidates.iter().map(|candidate| candidate.saved).sum();
    let rent: f64 = candidates.iter().map(|candidate| candidate.saved.get() as f64 * candidate.calls as f64).sum();
    let price = RENT_SHARE * stepped.prices.rho() * stepped.rewritten.get() as f64;
    rent >= price && saved >= LEAST_SAVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(saved: u64, calls: u64) -> Candidate {
        Candidate { id: MessageId(1), saved: Tokens::new(saved), calls }
    }

    fn at(rewritten: u64) -> Stepped {
        Stepped { rewritten: Tokens::new(rewritten), prices: Prices::default(), free: false }
    }

    #[test]
    fn a_swap_waits_until_waiting_has_cost_half_of_it() {
        // 0.5 * 11.5 * 10,000 = 57,500 = 4,000 * 14.375
        assert!(!decide(&[candidate(4_000, 14)], &at(10_000)));
        assert!(decide(&[candidate(4_000, 15)], &at(10_000)));
        assert!(decide(&[candidate(2_000, 15), candidate(2_000, 14)], &at(10_000)));
    }

    #[test]
    fn a_swap_saves_three_thousand_tokens_or_waits() {
        assert!(!decide(&[candidate(2_999, 1_000)], &at(10)));
        assert!(decide(&[candidate(3_000, 1_000)], &at(10)));
    }

    #[test]
    fn a_swap_that_costs_nothing_does_not_wait() {
        assert!(decide(&[candidate(1, 0)], &Stepped { free: true, ..at(1_000_000) }));
        assert!(!decide(&[], &Stepped { free: true, ..at(0) }));
    }

    #[test]
    fn dear_writes_and_cheap_reads_make_swaps_wait_longer() {
        let deepseek = Stepped { prices: Prices { cached: 20, write: 1_000 }, ..at(10_000) };
        assert!(!decide(&[candidate(4_000, 61)], &deepseek));
        assert!(decide(&[candidate(4_000, 62)], &deepseek));
    }
}
