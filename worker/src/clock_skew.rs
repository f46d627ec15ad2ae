//! Detects that the database's clock was set back, and repairs times that were set by it before.
//!
//! All times are compared with the database's clock only. When it is set back, times that were set
//! before lie too far in the future. The repair itself is the store's `mend_times`.

use std::time::Duration;

use anneal_store::Store;
use tokio::time::Instant;
use tracing::warn;

/// Time that the clock may lose between two checks without counting as set back: a check takes time
/// too.
const TOLERANCE: Duration = Duration::from_secs(5);
/// The longest wait that is ever set: what a provider may ask for, and a breaker's cooldown.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Limit of the remaining wait once the clock was set back: the exact rest of each wait is not
/// known.
const WAIT_AFTER_RESET: Duration = Duration::from_mins(5);
/// How long each check repairs times. A transaction that began before the clock was set back still
/// writes by the old clock afterwards, and a row that it has locked is skipped meanwhile.
const REPAIR_PERIOD: Duration = Duration::from_secs(10);

/// The state of the checks.
#[derive(Default)]
pub(crate) struct DatabaseClock {
    /// When the last answer came, and its time: microseconds since 1970.
    last: Option<(Instant, i64)>,
    /// Until when each check repairs times, and the longest wait that it leaves.
    repair: Option<(Instant, Duration)>,
}

impl DatabaseClock {
    /// Reads the clock. At the first check, and when the clock was set back since the last one,
    /// this check and those of the next [`REPAIR_PERIOD`] shorten waits and leases that are too
    /// long.
    pub(crate) async fn check(&mut self, store: &Store) {
        let asked = Instant::now();
        let now_us = match store.read_clock().await {
            Ok(now_us) => now_us,
            Err(error) => return warn!("could not look at the database's clock: {error}"),
        };
        let until = asked + REPAIR_PERIOD;
        // Measured from the last answer to this question, so that a slow check makes the clock seem
        // fast, never slow.
        match self.last.replace((Instant::now(), now_us)) {
            None => self.repair = Some((until, LONGEST_WAIT)),
            Some((before, then_us)) if was_set_back(then_us, now_us, asked - before) => {
                self.repair = Some((until, WAIT_AFTER_RESET));
            }
            Some(_) => {}
        }
        let Some((until, most)) = self.repair else {
            return;
        };
        match store.mend_times(most).await {
            Ok(mended) => {
                if mended > 0 {
                    warn!(
                        "the database's clock was set back: brought {mended} leases and waits near"
                    );
                }
                self.repair = self.repair.filter(|_| asked < until);
            }
            // The next check tries again.
            Err(error) => warn!("could not bring near what the database's clock has set: {error}"),
        }
    }
}

/// Whether a clock that said `then_us` and ran for `elapsed` should now say more than `now_us`.
fn was_set_back(then_us: i64, now_us: i64, elapsed: Duration) -> bool {
    let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_add(TOLERANCE.as_micros() as i64) < then_us.saturating_add(elapsed_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_on_or_ahead_was_not_set_back() {
        let second = Duration::from_secs(1);
        assert!(!was_set_back(0, 1_000_000, second));
        assert!(!was_set_back(0, 3_600_000_000, second), "ahead");
        assert!(
            !was_set_back(0, -3_000_000, second),
            "within the time that a check may take"
        );
        assert!(was_set_back(0, -4_500_000, second));
        assert!(was_set_back(3_600_000_000, 1_000_000, second), "an hour");
    }
}
