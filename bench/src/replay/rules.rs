//! When to swap: the rules, as pure functions of a conversation.

use super::{
    meter::{Bill, Meter},
    prices::Prices,
    script::Play,
};

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Never.
    None,
    /// Whatever is cool, at once.
    Strict,
    /// All that is cool, when waiting has cost half of what swapping costs.
    Stepped,
}

/// Share of a swap's price that waiting must have cost, and the tokens that a swap must save.
const RENT: f64 = 0.5;
const MIN_SAVED: u64 = 3_000;

impl Rule {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Strict, Self::Stepped];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
            Self::Stepped => "stepped",
        }
    }

    /// How many of the large messages are swapped, for each call.
    pub(crate) fn schedule(self, play: &Play, prices: Prices) -> Vec<usize> {
        let mut swapped = 0;
        let calls = play.calls.iter().enumerate();
        calls
            .map(|(call, at)| {
                swapped = match self {
                    Self::None => 0,
                    Self::Strict => at.cool,
                    Self::Stepped if at.cool > swapped && is_due(play, call, swapped, prices) => at.cool,
                    Self::Stepped => swapped,
                };
                swapped
            })
            .collect()
    }
}

/// Whether those that are cool and not swapped have cost enough by now.
fn is_due(play: &Play, call: usize, swapped: usize, prices: Prices) -> bool {
    let cool = play.calls[call].cool;
    let candidates = &play.large[swapped..cool];
    let saved: u64 = candidates.iter().map(|large| large.saved).sum();
    let rent: u64 = candidates.iter().map(|large| large.saved * (call - large.cool_from) as u64).sum();
    let behind = play.behind_swap(call, swapped);
    saved >= MIN_SAVED && rent as f64 >= RENT * prices.rho() * behind as f64
}

/// What a schedule of swaps costs.
pub(crate) fn bill(play: &Play, schedule: &[usize]) -> Bill {
    let mut meter = Meter::default();
    for (call, swapped) in schedule.iter().enumerate() {
        meter.call(play.context(call, *swapped));
    }
    meter.bill()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{
        prices::ANTHROPIC,
        script::{Said, Script, Zone},
    };

    /// A large user message, then calls of the model alone, each with so many tokens behind it.
    fn run(large: u64, behind: u64, calls: usize) -> Play {
        let answer = Said { tokens: behind, turn: 1, is_answer: true, summary: None };
        let mut said = vec![Said { tokens: large, turn: 1, is_answer: false, summary: None }];
        said.extend(vec![answer; calls]);
        Script { system: 0, said }.under(Zone { threshold: 1_000, turns: 5, calls: 2 })
    }

    #[test]
    fn strict_swaps_whatever_is_cool() {
        assert_eq!(Rule::Strict.schedule(&run(4_000, 10, 6), ANTHROPIC), [0, 0, 0, 1, 1, 1]);
        assert_eq!(Rule::None.schedule(&run(4_000, 10, 6), ANTHROPIC), [0; 6]);
    }

    #[test]
    fn stepped_waits_until_waiting_has_cost_half_of_the_swap() {
        // Cool at call 3. At call n, rent is 3,600 (n - 3); behind are n - 1 answers of 900 + 4, at 0.5 x 11.5.
        let due = |n: f64| 3_600.0 * (n - 3.0) >= 5.75 * 904.0 * (n - 1.0);
        assert!((4..100).all(|n| !due(f64::from(n))));
        assert_eq!(Rule::Stepped.schedule(&run(4_000, 900, 99), ANTHROPIC), [0; 99]);
        // With 100 each: 3,600 (n - 3) >= 598 (n - 1) from n = 4 on.
        assert_eq!(Rule::Stepped.schedule(&run(4_000, 100, 7), ANTHROPIC), [0, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn stepped_leaves_alone_what_saves_little() {
        assert_eq!(Rule::Stepped.schedule(&run(3_333, 0, 9), ANTHROPIC)[8], 1, "3,000 saved");
        assert_eq!(Rule::Stepped.schedule(&run(3_332, 0, 9), ANTHROPIC)[8], 0, "2,999 saved");
    }
}
