//! How long and how often is measured.

use std::time::Duration;

/// The whole measurement, or a look at whether it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Figures that may be compared.
    Full,
    /// One short round of everything: its figures say nothing.
    Quick,
}

impl Pace {
    /// Whether its figures say nothing.
    pub(crate) fn is_quick(self) -> bool {
        self == Self::Quick
    }

    /// This many rounds.
    pub(crate) fn rounds(self, rounds: usize) -> usize {
        match self {
            Self::Full => rounds,
            Self::Quick => 1,
        }
    }

    /// This many seconds.
    pub(crate) fn seconds(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(match self {
            Self::Full => seconds,
            Self::Quick => seconds.min(1.0),
        })
    }

    /// This many things.
    pub(crate) fn number(self, number: u64) -> u64 {
        match self {
            Self::Full => number,
            Self::Quick => number.div_ceil(20),
        }
    }
}

/// Two that are compared, in the order of this round: neither always comes first.
pub(crate) fn in_turns<T>(round: usize, pair: [T; 2]) -> [T; 2] {
    let [first, second] = pair;
    if round.is_multiple_of(2) { [first, second] } else { [second, first] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_of_a_pair_always_comes_first() {
        assert_eq!([0, 1, 2].map(|round| in_turns(round, ["a", "b"])), [["a", "b"], ["b", "a"], ["a", "b"]]);
    }
}
