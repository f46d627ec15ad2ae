//! How long the neighbour's calls, the probes and the neighbour's jobs took.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::super::findings::{Findings, held};

/// The slowest call, and the slowest probe, of a hundred in a window.
pub(super) const P99: Duration = Duration::from_secs(1);
/// Over which the slowest of a hundred is found.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// Fewer calls than these have no slowest of a hundred.
const FEWEST: usize = 50;

/// What took its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A call of the neighbour's.
    Call,
    /// A probe.
    Probe,
    /// From an acknowledgement until something followed.
    Job,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    kind: Kind,
    what: &'static str,
    /// When it had ended, since the beginning.
    at: Duration,
    took: Duration,
}

/// All that was measured.
#[derive(Debug)]
pub struct Latencies {
    began: Instant,
    measured: Mutex<Vec<Measured>>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { began: Instant::now(), measured: Mutex::default() }
    }
}

impl Latencies {
    /// Notes that something which began then has ended now.
    pub(super) fn add(&self, kind: Kind, what: &'static str, began: Instant) {
        let (at, took) = (self.began.elapsed(), began.elapsed());
        held(&self.measured).push(Measured { kind, what, at, took });
    }

    /// Demands of calls and probes since `from` that 99 of 100 took a second at most; where the next window begins.
    pub(super) fn check_window(&self, from: Duration, findings: &Findings) -> Duration {
        let to = self.began.elapsed();
        for kind in [Kind::Call, Kind::Probe] {
            let all = held(&self.measured);
            let of_kind = all.iter().filter(|one| one.kind == kind && (from..to).contains(&one.at));
            let mut took: Vec<(Duration, &str)> = of_kind.map(|one| (one.took, one.what)).collect();
            drop(all);
            took.sort_unstable();
            let Some((p99, _)) = percentile(&took, 99).filter(|_| took.len() >= FEWEST) else { continue };
            findings.demand(p99 <= P99, "latency", || {
                let (slowest, what) = took.last().copied().unwrap_or_default();
                format!(
                    "{} of kind {kind:?} from {:.0} s to {:.0} s: p99 {p99:.1?}, slowest {what} {slowest:.1?}",
                    took.len(),
                    from.as_secs_f64(),
                    to.as_secs_f64()
                )
            });
        }
        to
    }

    /// Calls and probes so far.
    pub(super) fn count(&self, kind: Kind) -> usize {
        held(&self.measured).iter().filter(|one| one.kind == kind).count()
    }
}

/// The value that so many of a hundred are at most; None: there is none.
fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied()
}

impl fmt::Display for Latencies {
    /// A line for each kind of call: how many, p50, p99 and the slowest, in milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<(Kind, &str), Vec<Duration>> = BTreeMap::new();
        for one in held(&self.measured).iter() {
            kinds.entry((one.kind, one.what)).or_default().push(one.took);
            kinds.entry((one.kind, "all")).or_default().push(one.took);
        }
        for ((kind, what), mut took) in kinds {
            took.sort_unstable();
            let at = |percent| percentile(&took, percent).unwrap_or_default().as_millis();
            let (p50, p99, most) = (at(50), at(99), at(100));
            writeln!(f, "{kind:?} {what}: {} times, p50 {p50} ms, p99 {p99} ms, at most {most} ms", took.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_that_so_many_are_at_most() {
        let values: Vec<u32> = (1..=200).collect();
        assert_eq!(
            (percentile(&values, 50), percentile(&values, 99), percentile(&values, 100)),
            (Some(100), Some(198), Some(200))
        );
        assert_eq!(percentile::<u32>(&[], 99), None);
    }
}
