//! Compares counts with the recorded ones.

use std::fmt;

use super::baseline::{Measurement, grouped};

/// A share, in per cent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// The change of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    name: String,
    /// The recorded count, if there is one.
    before: Option<u64>,
    /// The new count, if it is still measured.
    now: Option<u64>,
    /// The growth that is tolerated.
    tolerated: Percent,
}

/// The result of comparing two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The change is within the tolerance.
    Same,
    /// Grew by more than the tolerance.
    Grown,
    /// Shrank by more than the tolerance. The baseline should be recorded again, because otherwise
    /// a later growth up to the old count would not be noticed.
    Shrunk,
    /// Measured, but not recorded.
    New,
    /// Recorded, but no longer measured.
    Gone,
}

impl Verdict {
    /// Whether this makes the gate fail.
    pub(super) const fn fails(self) -> bool {
        matches!(self, Self::Grown | Self::New | Self::Gone)
    }

    const fn remark(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Grown => "  GROWN",
            Self::Shrunk => "  shrunk: record a new baseline (--write)",
            Self::New => "  NOT RECORDED",
            Self::Gone => "  NO LONGER MEASURED",
        }
    }
}

/// Compares all measurements, in the order of the new counts. Those that are no longer measured
/// come last.
pub(super) fn compare(
    recorded: &[Measurement],
    counted: &[Measurement],
    tolerated: Percent,
) -> Vec<Change> {
    let count_of = |all: &[Measurement], name: &str| {
        all.iter()
            .find(|one| one.name == name)
            .map(|one| one.instructions)
    };
    let gone = recorded
        .iter()
        .filter(|one| count_of(counted, &one.name).is_none());
    let names = counted.iter().chain(gone).map(|one| one.name.clone());
    names
        .map(|name| Change {
            before: count_of(recorded, &name),
            now: count_of(counted, &name),
            name,
            tolerated,
        })
        .collect()
}

impl Change {
    /// Compares the two counts.
    pub(super) fn verdict(&self) -> Verdict {
        let Percent(tolerated) = self.tolerated;
        match (self.before, self.now) {
            (None, _) => Verdict::New,
            (Some(_), None) => Verdict::Gone,
            (Some(before), Some(now)) if now * 100 > before * (100 + tolerated) => Verdict::Grown,
            (Some(before), Some(now)) if now * 100 < before * (100 - tolerated) => Verdict::Shrunk,
            (Some(_), Some(_)) => Verdict::Same,
        }
    }
}

/// The growth in per cent.
fn percent(before: u64, now: u64) -> f64 {
    (now as f64 / before as f64 - 1.0) * 100.0
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now.map(|now| grouped(now, ','));
        let percent = self
            .before
            .zip(self.now)
            .map(|(before, now)| format!("{:+.1} %", percent(before, now)));
        let (now, percent) = (now.unwrap_or_default(), percent.unwrap_or_default());
        write!(
            f,
            "  {:<28}{now:>14}{percent:>12}{}",
            self.name,
            self.verdict().remark()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, u64)]) -> Vec<Measurement> {
        let one = |(name, instructions): &(&str, u64)| Measurement {
            name: (*name).into(),
            description: String::new(),
            instructions: *instructions,
        };
        counts.iter().map(one).collect()
    }

    fn verdicts(recorded: &[(&str, u64)], counted: &[(&str, u64)]) -> Vec<Verdict> {
        compare(&counts(recorded), &counts(counted), Percent(5))
            .iter()
            .map(Change::verdict)
            .collect()
    }

    #[test]
    fn growth_within_the_tolerance_is_ignored() {
        let recorded = [("a", 1_000), ("b", 1_000), ("c", 1_000), ("d", 1_000)];
        let counted = [("a", 1_050), ("b", 1_051), ("c", 949), ("d", 950)];
        assert_eq!(
            verdicts(&recorded, &counted),
            [
                Verdict::Same,
                Verdict::Grown,
                Verdict::Shrunk,
                Verdict::Same
            ]
        );
        let with_25_percent = compare(
            &counts(&[("a", 1_000), ("b", 1_000)]),
            &counts(&[("a", 1_250), ("b", 1_251)]),
            Percent(25),
        );
        assert_eq!(
            with_25_percent
                .iter()
                .map(Change::verdict)
                .collect::<Vec<_>>(),
            [Verdict::Same, Verdict::Grown]
        );
    }

    #[test]
    fn measurements_missing_on_one_side_fail() {
        let found = verdicts(&[("a", 1), ("b", 1)], &[("b", 1), ("c", 1)]);
        assert_eq!(found, [Verdict::Same, Verdict::New, Verdict::Gone]);
        assert!(Verdict::New.fails() && Verdict::Gone.fails() && Verdict::Grown.fails());
        assert!(!Verdict::Same.fails() && !Verdict::Shrunk.fails());
    }

    #[test]
    fn a_line_shows_the_count_and_its_change() {
        let changes = compare(
            &counts(&[("context_50", 100_000)]),
            &counts(&[("context_50", 1_110_000)]),
            Percent(5),
        );
        let line = changes[0].to_string();
        assert_eq!(
            line,
            "  context_50                       1,110,000   +1010.0 %  GROWN"
        );
    }
}
