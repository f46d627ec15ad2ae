//! How long and how often to measure, and which side of a comparison comes first.

use std::time::Duration;

/// The complete measurement, or a quick check that everything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Figures that can be compared.
    Full,
    /// One short round of everything. The figures are not meaningful.
    Quick,
}

impl Pace {
    /// Whether the figures are not meaningful.
    pub(crate) fn is_quick(self) -> bool {
        self == Self::Quick
    }

    /// Number of rounds: the given number, or one when quick.
    pub(crate) fn rounds(self, rounds: usize) -> usize {
        match self {
            Self::Full => rounds,
            Self::Quick => 1,
        }
    }

    /// Duration: the given number of seconds, or at most one second when quick.
    pub(crate) fn seconds(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(match self {
            Self::Full => seconds,
            Self::Quick => seconds.min(1.0),
        })
    }

    /// The given number of something, or a twentieth of it when quick.
    pub(crate) fn number(self, number: u64) -> u64 {
        match self {
            Self::Full => number,
            Self::Quick => number.div_ceil(20),
        }
    }
}

/// The sides of a comparison in the order for this round: another one comes first in each round.
pub(crate) fn alternate<T, const SIDES: usize>(round: usize, mut sides: [T; SIDES]) -> [T; SIDES] {
    sides.rotate_left(round % SIDES);
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_side_always_comes_first() {
        assert_eq!(
            [0, 1, 2].map(|round| alternate(round, ["a", "b"])),
            [["a", "b"], ["b", "a"], ["a", "b"]]
        );
        assert_eq!(
            [0, 1, 2].map(|round| alternate(round, ["a", "b", "c"])),
            [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
        );
    }
}
