//! The database's clock is the only one that anything is compared with, and it may be set back: what was set by it before lies
//! too far ahead then.

use std::time::Duration;

use anneal_store::Store;
use tokio::time::Instant;
use tracing::warn;

use crate::patience::answered;

/// What a clock may lose between two looks without having been set back: the looks take their time too.
const SLACK: Duration = Duration::from_secs(5);
/// The longest that anything waits which was put off for a reason: what a provider may ask for, and a breaker's cooldown.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// What is left of such a wait when the clock was set back: by how much, nobody can say for each.
const LEFT: Duration = Duration::from_mins(5);
/// How long each look brings times near. A transaction that began before the clock was set back still writes by the old
/// clock afterwards, and a row that it has locked is skipped meanwhile.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// What was seen of the database's clock.
#[derive(Default)]
pub(crate) struct DatabaseClock {
    /// When it had answered, and what it said: microseconds since 1970.
    last: Option<(Instant, i64)>,
    /// Until when each look brings times near, and to what.
    mending: Option<(Instant, Duration)>,
}

impl DatabaseClock {
    /// Looks at it. At the first look, and when it was set back since the last one, this look and those of the next
    /// [`STRAGGLERS`] bring near what lies too far ahead.
    pub(crate) async fn look(&mut self, store: &Store) {
        let asked = Instant::now();
        let now_us = match answered(store.clock()).await {
            Ok(now_us) => now_us,
            Err(error) => return warn!("could not look at the database's clock: {error}"),
        };
        let until = asked + STRAGGLERS;
        // From when it had answered to when it was asked again: looks that take long make it seem to gain, never to lose.
        match self.last.replace((Instant::now(), now_us)) {
            None => self.mending = Some((until, LONGEST_WAIT)),
            Some((before, then_us)) if was_set_back(then_us, now_us, asked - before) => {
                self.mending = Some((until, LEFT));
            }
            Some(_) => {}
        }
        let Some((until, most)) = self.mending else { return };
        match answered(store.mend_times(most)).await {
            Ok(mended) => {
                if mended > 0 {
                    warn!("the database's clock was set back: brought {mended} leases and waits near");
                }
                self.mending = self.mending.filter(|_| asked < until);
            }
            // The next look tries again.
            Err(error) => warn!("could not bring near what the database's clock has set: {error}"),
        }
    }
}

/// Whether a clock that went on from `then_us` for so long should say more than `now_us`.
fn was_set_back(then_us: i64, now_us: i64, elapsed: Duration) -> bool {
    let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_add(SLACK.as_micros() as i64) < then_us.saturating_add(elapsed_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_on_or_ahead_was_not_set_back() {
        let second = Duration::from_secs(1);
        assert!(!was_set_back(0, 1_000_000, second));
        assert!(!was_set_back(0, 3_600_000_000, second), "ahead");
        assert!(!was_set_back(0, -3_000_000, second), "within what a look may take");
        assert!(was_set_back(0, -4_500_000, second));
        assert!(was_set_back(3_600_000_000, 1_000_000, second), "an hour");
    }
}
