//! Detects that the database's clock was set back, and repairs the stored times.
//!
//! All stored times are compared with the database's clock only. When that clock is set back, times
//! that were stored before lie too far in the future. The repair itself is the store's
//! `mend_times`.

use std::time::Duration;

use anneal_store::Store;
use tokio::time::Instant;
use tracing::warn;

/// The database's clock counts as set back if it lost more than this between two checks. A smaller
/// loss only makes leases and waits longer by as much.
const TOLERANCE: Duration = Duration::from_secs(5);
/// The longest wait that is ever stored: a provider may ask for it, and a breaker may have it as
/// its cooldown.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Waits are shortened to this once the clock was set back: how much of each wait is really left is
/// not known.
const WAIT_AFTER_RESET: Duration = Duration::from_mins(5);
/// For this long after a check found the clock set back, each check repairs times. A transaction
/// that began before that may still write times of the old clock, and a repair skips the rows that
/// such a transaction has locked.
const REPAIR_PERIOD: Duration = Duration::from_secs(10);

/// What the checks have seen of the database's clock.
#[derive(Default)]
pub(crate) struct DatabaseClock {
    /// When the last answer came, and the database's time in it: microseconds since 1970.
    last: Option<(Instant, i64)>,
    /// Until when each check repairs times, and the longest wait that it leaves.
    repair: Option<(Instant, Duration)>,
}

impl DatabaseClock {
    /// Reads the database's clock, and repairs stored times if necessary. If this is the first
    /// check, or if the clock was set back since the last one, this check and those of the next
    /// [`REPAIR_PERIOD`] shorten waits and leases that are too long.
    pub(crate) async fn check(&mut self, store: &Store) {
        let asked = Instant::now();
        let now_us = match store.read_clock().await {
            Ok(now_us) => now_us,
            Err(error) => {
                return store.log_failure(&error, || {
                    warn!("could not read the database's clock: {error}");
                });
            }
        };
        let until = asked + REPAIR_PERIOD;
        // The time from the last answer to this question is shorter than the time between the two
        // readings of the clock. So a slow check makes the clock seem fast, never set back.
        match self.last.replace((Instant::now(), now_us)) {
            None => self.repair = Some((until, LONGEST_WAIT)),
            Some((last_answer, last_us)) if was_set_back(last_us, now_us, asked - last_answer) => {
                self.repair = Some((until, WAIT_AFTER_RESET));
            }
            Some(_) => {}
        }
        let Some((until, longest_wait)) = self.repair else {
            return;
        };
        match store.mend_times(longest_wait).await {
            Ok(mended) => {
                if mended > 0 {
                    warn!("the database's clock was set back: shortened {mended} leases and waits");
                }
                self.repair = self.repair.filter(|_| asked < until);
            }
            // The next check tries again.
            Err(error) => store.log_failure(&error, || {
                warn!("could not shorten leases and waits that are too long: {error}");
            }),
        }
    }
}

/// Whether a clock that showed `last_us` and then ran for `elapsed` should now show more than
/// `now_us`, by more than [`TOLERANCE`].
fn was_set_back(last_us: i64, now_us: i64, elapsed: Duration) -> bool {
    let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_add(TOLERANCE.as_micros() as i64) < last_us.saturating_add(elapsed_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loss_above_the_tolerance_counts_as_a_clock_that_was_set_back() {
        let second = Duration::from_secs(1);
        assert!(!was_set_back(0, 1_000_000, second));
        assert!(!was_set_back(0, 3_600_000_000, second), "set an hour ahead");
        assert!(
            !was_set_back(0, -3_000_000, second),
            "lost 4 s, less than the tolerance of 5 s"
        );
        assert!(was_set_back(0, -4_500_000, second), "lost 5.5 s");
        assert!(
            was_set_back(3_600_000_000, 1_000_000, second),
            "set back by an hour"
        );
    }
}
