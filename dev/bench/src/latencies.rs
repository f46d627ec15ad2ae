//! Latencies of calls: a histogram from one microsecond to two minutes, with a precision of three
//! digits.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is recorded exactly, in microseconds. Longer ones are recorded as this
/// value.
const LONGEST_US: u64 = 120_000_000;

/// Latencies of calls.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(
            Histogram::new_with_bounds(1, LONGEST_US, 3)
                .expect("the bounds and the digits are constants that fit"),
        )
    }
}

impl Latencies {
    /// Adds a call.
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(
            u64::try_from(took.as_micros())
                .unwrap_or(LONGEST_US)
                .clamp(1, LONGEST_US),
        );
    }

    /// Adds all latencies of `others`.
    pub(crate) fn add(&mut self, others: &Self) {
        self.0.add(&others.0).expect("both have the same bounds");
    }

    /// Number of recorded calls.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Milliseconds within which this share of the calls finished; NaN if there were no calls.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        if self.0.is_empty() {
            f64::NAN
        } else {
            self.0.value_at_quantile(share) as f64 / 1_000.0
        }
    }

    /// The median in milliseconds.
    pub(crate) fn p50(&self) -> f64 {
        self.percentile_ms(0.5)
    }

    /// The 99th percentile in milliseconds.
    pub(crate) fn p99(&self) -> f64 {
        self.percentile_ms(0.99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_calls_that_were_added() {
        let (mut fast, mut slow) = (Latencies::default(), Latencies::default());
        (1..=90).for_each(|ms| fast.record(Duration::from_millis(ms)));
        (91..=100).for_each(|ms| slow.record(Duration::from_millis(ms)));
        fast.add(&slow);
        assert_eq!(fast.count(), 100);
        assert!(
            (fast.p50() - 50.0).abs() < 0.1 && (fast.p99() - 99.0).abs() < 0.1,
            "{} {}",
            fast.p50(),
            fast.p99()
        );
    }

    #[test]
    fn a_call_beyond_the_bounds_counts_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_hours(1));
        // Two minutes, less the imprecision of the histogram.
        assert!(latencies.p50() > 119_000.0);
    }

    #[test]
    fn without_calls_there_is_no_percentile() {
        assert!(Latencies::default().p50().is_nan());
    }
}
