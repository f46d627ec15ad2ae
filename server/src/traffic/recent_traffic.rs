//! How often a tenant calls and how many bytes it transfers, over about the last ten seconds: what
//! operators see. `rate` limits; this only counts.

use std::time::Duration;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// Sums of the present window and of the one before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentTraffic {
    /// The number of the present window since the clock's start.
    window: u64,
    present: Sums,
    before: Sums,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
}

impl RecentTraffic {
    /// Counts calls and bytes at the time `now` of a clock.
    pub(super) fn count(&mut self, now: Duration, calls: u64, bytes: u64) {
        let window = now.as_secs() / WINDOW.as_secs();
        if window != self.window {
            self.before = if window == self.window + 1 {
                self.present
            } else {
                Sums::default()
            };
            self.present = Sums::default();
            self.window = window;
        }
        self.present.calls = self.present.calls.saturating_add(calls);
        self.present.bytes = self.present.bytes.saturating_add(bytes);
    }

    /// Calls and bytes per second at the time `now`: those of the present window, and of the one
    /// before as much as a full window lacks.
    pub(super) fn per_second(mut self, now: Duration) -> (f64, f64) {
        self.count(now, 0, 0);
        let window = WINDOW.as_secs_f64();
        let passed = now.as_secs_f64() % window;
        let rate = |present: u64, before: u64| {
            (before as f64).mul_add(1.0 - passed / window, present as f64) / window
        };
        (
            rate(self.present.calls, self.before.calls),
            rate(self.present.bytes, self.before.bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(recent: RecentTraffic, seconds: f64) -> (f64, f64) {
        recent.per_second(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn a_rate_is_seen_while_it_lasts_and_forgotten_after_two_windows() {
        let mut recent = RecentTraffic::default();
        for second in 100..120 {
            recent.count(Duration::from_secs(second), 2, 1_000);
        }
        assert_eq!(rates(recent, 120.0), (2.0, 1_000.0));
        assert_eq!(rates(recent, 125.0), (1.0, 500.0));
        assert_eq!(rates(recent, 130.0), (0.0, 0.0));
        assert_eq!(rates(recent, 9_999.0), (0.0, 0.0));
    }
}
