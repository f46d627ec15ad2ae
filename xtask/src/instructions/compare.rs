//! Counts beside the recorded ones.

use std::fmt;

use super::baseline::{Measurement, grouped};

/// A share, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// What became of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    name: String,
    /// The recorded count, if there is one.
    before: Option<u64>,
    /// The count, if it is still measured.
    now: Option<u64>,
    /// By how much it may differ.
    tolerated: Percent,
}

/// What is to be said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// About the same.
    Same,
    /// More than tolerated.
    Grown,
    /// So much less that the baseline should be written again, lest it be lost unseen.
    Shrunk,
    /// Measured, not recorded.
    New,
    /// Recorded, no longer measured.
    Gone,
}

impl Fate {
    /// Whether the gate fails by it.
    pub(super) const fn fails(self) -> bool {
        matches!(self, Self::Grown | Self::New | Self::Gone)
    }

    const fn remark(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Grown => "  GROWN",
            Self::Shrunk => "  less: worth a new baseline (--write)",
            Self::New => "  NOT RECORDED",
            Self::Gone => "  NO LONGER MEASURED",
        }
    }
}

/// Every measurement of either, in the order of what was counted; those that are gone come last.
pub(super) fn compare(recorded: &[Measurement], counted: &[Measurement], tolerated: Percent) -> Vec<Change> {
    let of = |all: &[Measurement], name: &str| all.iter().find(|one| one.name == name).map(|one| one.instructions);
    let gone = recorded.iter().filter(|one| of(counted, &one.name).is_none());
    let names = counted.iter().chain(gone).map(|one| one.name.clone());
    names.map(|name| Change { before: of(recorded, &name), now: of(counted, &name), name, tolerated }).collect()
}

impl Change {
    /// What is to be said of it.
    pub(super) fn fate(&self) -> Fate {
        let Percent(tolerated) = self.tolerated;
        match (self.before, self.now) {
            (None, _) => Fate::New,
            (Some(_), None) => Fate::Gone,
            (Some(before), Some(now)) if now * 100 > before * (100 + tolerated) => Fate::Grown,
            (Some(before), Some(now)) if now * 100 < before * (100 - tolerated) => Fate::Shrunk,
            (Some(_), Some(_)) => Fate::Same,
        }
    }
}

fn percent(before: u64, now: u64) -> f64 {
    (now as f64 / before as f64 - 1.0) * 100.0
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now.map(|now| grouped(now, ','));
        let percent = self.before.zip(self.now).map(|(before, now)| format!("{:+.1} %", percent(before, now)));
        let (now, percent) = (now.unwrap_or_default(), percent.unwrap_or_default());
        write!(f, "  {:<28}{now:>14}{percent:>12}{}", self.name, self.fate().remark())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Vec<Measurement> {
        let one = |(name, instructions): &(&str, u64)| Measurement {
            name: (*name).into(),
            says: String::new(),
            instructions: *instructions,
        };
        counts.iter().map(one).collect()
    }

    fn fates(recorded: &[(&str, u64)], counted: &[(&str, u64)]) -> Vec<Fate> {
        compare(&counts(recorded), &counts(counted), Percent(5)).iter().map(Change::fate).collect()
    }

    #[test]
    fn only_more_than_what_is_tolerated_is_growth() {
        let recorded = [("a", 1_000), ("b", 1_000), ("c", 1_000), ("d", 1_000)];
        let counted = [("a", 1_050), ("b", 1_051), ("c", 949), ("d", 950)];
        assert_eq!(fates(&recorded, &counted), [Fate::Same, Fate::Grown, Fate::Shrunk, Fate::Same]);
        let more = compare(&counts(&[("a", 1_000), ("b", 1_000)]), &counts(&[("a", 1_250), ("b", 1_251)]), Percent(25));
        assert_eq!(more.iter().map(Change::fate).collect::<Vec<_>>(), [Fate::Same, Fate::Grown]);
    }

    #[test]
    fn what_is_not_in_both_fails() {
        let found = fates(&[("a", 1), ("b", 1)], &[("b", 1), ("c", 1)]);
        assert_eq!(found, [Fate::Same, Fate::New, Fate::Gone]);
        assert!(Fate::New.fails() && Fate::Gone.fails() && Fate::Grown.fails());
        assert!(!Fate::Same.fails() && !Fate::Shrunk.fails());
    }

    #[test]
    fn a_line_says_the_count_and_how_it_moved() {
        let changes = compare(&counts(&[("context_50", 100_000)]), &counts(&[("context_50", 1_110_000)]), Percent(5));
        let line = changes[0].to_string();
        assert_eq!(line, "  context_50                       1,110,000   +1010.0 %  GROWN");
    }
}
