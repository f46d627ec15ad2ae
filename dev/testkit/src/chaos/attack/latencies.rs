//! Latencies of the neighbor's calls, of its jobs, and of the probes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::super::findings::{Findings, lock};
use crate::gate_or_nightly;

/// The highest allowed 99th percentile of calls, and of probes, in a window. A single call that
/// takes longer is counted as slow.
const LATENCY_LIMIT: Duration = Duration::from_secs(1);
/// [`LATENCY_LIMIT`] in the gate, where the build is not optimized and all attacks happen within
/// half a minute on a machine of unknown speed. A caller that is starved waits far longer.
const LATENCY_LIMIT_IN_GATE: Duration = Duration::from_secs(3);
/// The minimum length of a window over which percentiles are computed. Only the last window may be
/// shorter.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// In a window with fewer calls, the calls are not checked; with fewer probes, the probes are not.
const MIN_MEASUREMENTS: usize = 50;

/// The kind of operation that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A call of the neighbor.
    Call,
    /// A probe of a server's health.
    Probe,
    /// The time from an acknowledgement until the watch delivered the message, or until the message
    /// was counted.
    Job,
}

/// The latency limit of this run: the gate's, or that of `make nightly` and `make soak`.
pub(super) fn latency_limit() -> Duration {
    if std::env::var_os("ANNEAL_FAULTS_MINUTES").is_some() {
        return LATENCY_LIMIT;
    }
    gate_or_nightly(LATENCY_LIMIT_IN_GATE, LATENCY_LIMIT)
}

#[derive(Debug, Clone, Copy)]
struct Measurement {
    kind: Kind,
    /// The name of the operation.
    what: &'static str,
    /// The time of the operation's end, since [`Latencies::began`].
    end: Duration,
    took: Duration,
}

/// All latencies that were measured in a campaign.
#[derive(Debug)]
pub struct Latencies {
    /// The time just before the neighbor's clients start.
    began: Instant,
    measured: Mutex<Vec<Measurement>>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            measured: Mutex::default(),
        }
    }
}

impl Latencies {
    /// Records the operation `what`, which started at `began` and ends now.
    pub(super) fn add(&self, kind: Kind, what: &'static str, began: Instant) {
        let (end, took) = (self.began.elapsed(), began.elapsed());
        lock(&self.measured).push(Measurement {
            kind,
            what,
            end,
            took,
        });
    }

    /// Checks that the 99th percentile of calls, and of probes, in the window from `from` until now
    /// is at most [`latency_limit`]. Returns the end of this window, which is the next one's start.
    /// Both are times since [`Self::began`].
    pub(super) fn check_window(&self, from: Duration, findings: &Findings) -> Duration {
        let to = self.began.elapsed();
        for kind in [Kind::Call, Kind::Probe] {
            let all = lock(&self.measured);
            let of_kind = all
                .iter()
                .filter(|one| one.kind == kind && (from..to).contains(&one.end));
            let mut took: Vec<(Duration, &str)> = of_kind.map(|one| (one.took, one.what)).collect();
            drop(all);
            took.sort_unstable();
            let Some((p99, _)) = percentile(&took, 99).filter(|_| took.len() >= MIN_MEASUREMENTS)
            else {
                continue;
            };
            findings.demand(p99 <= latency_limit(), "latency", || {
                let (slowest, what) = took.last().copied().unwrap_or_default();
                format!(
                    "{} operations of kind {kind:?} from {:.0} s to {:.0} s: p99 {p99:.1?}, slowest {what} {slowest:.1?}",
                    took.len(),
                    from.as_secs_f64(),
                    to.as_secs_f64()
                )
            });
        }
        to
    }

    /// The number of measurements of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        lock(&self.measured)
            .iter()
            .filter(|one| one.kind == kind)
            .count()
    }
}

/// The smallest value that at least `percent` percent of the values do not exceed. None for an
/// empty slice.
fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied()
}

impl fmt::Display for Latencies {
    /// One line per operation, and one for all operations of a kind: count, p50, p99 and maximum in
    /// milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<(Kind, &str), Vec<Duration>> = BTreeMap::new();
        for one in lock(&self.measured).iter() {
            kinds
                .entry((one.kind, one.what))
                .or_default()
                .push(one.took);
            kinds.entry((one.kind, "all")).or_default().push(one.took);
        }
        for ((kind, what), mut took) in kinds {
            took.sort_unstable();
            let ms = |percent| percentile(&took, percent).unwrap_or_default().as_millis();
            let (p50, p99, most) = (ms(50), ms(99), ms(100));
            writeln!(
                f,
                "{kind:?} {what}: {} times, p50 {p50} ms, p99 {p99} ms, at most {most} ms",
                took.len()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_value_that_this_share_does_not_exceed() {
        let values: Vec<u32> = (1..=200).collect();
        assert_eq!(
            (
                percentile(&values, 50),
                percentile(&values, 99),
                percentile(&values, 100)
            ),
            (Some(100), Some(198), Some(200))
        );
        assert_eq!(percentile::<u32>(&[], 99), None);
    }
}
