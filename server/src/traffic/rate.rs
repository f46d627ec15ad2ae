//! A rate with bursts (the algorithm GCRA). What a tenant has used is its debt, which time pays off
//! at the rate. The debt is kept as the time at which it will be paid off, with the rate at which
//! it is paid off.

use std::time::Duration;

/// An amount that may be used per second, and an amount that may be used at once (the burst).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    per_second: u64,
    burst: u64,
    /// The time in which a whole burst is paid off.
    burst_time: Duration,
}

/// The part of a burst that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateFigures {
    /// The amount that may be used at once after a pause.
    pub(crate) burst: u64,
    /// The amount that may be used at once now.
    pub(crate) left: u64,
    /// The time until the whole burst may be used again, if nothing is used before.
    pub(crate) full_in: Duration,
}

/// The used amount that time has not yet paid off. It may exceed the burst: bytes that have arrived
/// cannot be sent back, so they delay the next ones.
#[derive(Debug, Default)]
pub(crate) struct RateDebt {
    /// When the debt is paid off, on the same clock as the parameter `now` of the methods.
    settled_at: Duration,
    /// The amount that is paid off per second; 0: nothing was used yet.
    per_second: u64,
}

impl Rate {
    /// A rate. None if `per_second` is 0: no limit.
    pub(crate) fn new(per_second: u64, burst: u64) -> Option<Self> {
        let burst = burst.max(1);
        let without_time = Self {
            per_second,
            burst,
            burst_time: Duration::ZERO,
        };
        (per_second > 0).then(|| Self {
            burst_time: without_time.cost(burst),
            ..without_time
        })
    }

    /// The time in which the rate pays off this amount.
    fn cost(&self, amount: u64) -> Duration {
        from_nanos(u128::from(amount) * 1_000_000_000 / u128::from(self.per_second))
    }

    /// Has time pay off the debt at this rate from now on. If it was another rate, the remaining
    /// amount stays, and so the remaining time changes.
    fn take_over(&self, debt: &mut RateDebt, now: Duration) {
        if debt.per_second != self.per_second {
            let remaining = debt.settled_at.saturating_sub(now).as_nanos();
            let amount = remaining.saturating_mul(debt.per_second.into());
            let remaining = from_nanos(amount / u128::from(self.per_second));
            debt.settled_at = now.saturating_add(remaining);
            debt.per_second = self.per_second;
        }
    }

    /// How long to wait until an amount of 1 may be used: until the debt with that amount is at
    /// most the burst. None: no wait.
    pub(crate) fn wait_time(&self, debt: &mut RateDebt, now: Duration) -> Option<Duration> {
        self.take_over(debt, now);
        let debt_after_use = debt.settled_at.saturating_sub(now) + self.cost(1);
        debt_after_use
            .checked_sub(self.burst_time)
            .filter(|wait| !wait.is_zero())
    }

    /// The rest of the burst, and when the whole burst may be used again.
    pub(crate) fn figures(&self, debt: &mut RateDebt, now: Duration) -> RateFigures {
        self.take_over(debt, now);
        let full_in = debt.settled_at.saturating_sub(now);
        let unused = self.burst_time.saturating_sub(full_in).as_nanos();
        // Above a rate of one each nanosecond, a single use costs no time.
        let left = unused.checked_div(self.cost(1).as_nanos());
        let left = left.and_then(|left| u64::try_from(left).ok());
        RateFigures {
            burst: self.burst,
            left: left.map_or(self.burst, |left| left.min(self.burst)),
            full_in,
        }
    }

    /// Adds `amount` to the debt, whether or not the rate allows it.
    pub(crate) fn charge(&self, debt: &mut RateDebt, now: Duration, amount: u64) {
        self.take_over(debt, now);
        debt.settled_at = debt.settled_at.max(now).saturating_add(self.cost(amount));
    }

    /// Takes `amount` off the debt, which this rate was charged to.
    pub(crate) fn refund(&self, debt: &mut RateDebt, amount: u64) {
        debt.settled_at = debt.settled_at.saturating_sub(self.cost(amount));
    }
}

impl RateDebt {
    /// Whether the debt is paid off.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        self.settled_at <= now
    }
}

/// A time of nanoseconds; at most 584 years.
fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let (rate, mut debt) = (Rate::new(10, 3).expect("a rate"), RateDebt::default());
        for _ in 0..3 {
            assert_eq!(rate.wait_time(&mut debt, SECOND), None);
            rate.charge(&mut debt, SECOND, 1);
        }
        let wait = rate
            .wait_time(&mut debt, SECOND)
            .expect("the burst is spent");
        assert_eq!(wait, Duration::from_millis(100));
        assert!(rate.wait_time(&mut debt, SECOND + wait / 2).is_some());
        assert_eq!(rate.wait_time(&mut debt, SECOND + wait), None);
        // Three were used, and one is paid off in each tenth of a second.
        assert!(!debt.is_settled(SECOND + wait) && debt.is_settled(SECOND + 3 * wait));
    }

    #[test]
    fn as_much_is_left_as_may_be_used_without_a_wait() {
        for (per_second, burst) in [(10, 3), (3, 7), (7, 1), (u64::MAX, 5)] {
            let rate = Rate::new(per_second, burst).expect("a rate");
            let mut debt = RateDebt::default();
            let fresh = rate.figures(&mut debt, SECOND);
            assert_eq!((fresh.burst, fresh.left), (burst, burst));
            assert_eq!(fresh.full_in, Duration::ZERO);
            if per_second == u64::MAX {
                continue;
            }
            for used in 1..=burst {
                assert_eq!(rate.wait_time(&mut debt, SECOND), None);
                rate.charge(&mut debt, SECOND, 1);
                let figures = rate.figures(&mut debt, SECOND);
                assert_eq!(figures.left, burst - used, "{per_second} {burst}");
                assert_eq!(figures.full_in, debt.settled_at.saturating_sub(SECOND));
            }
            assert!(rate.wait_time(&mut debt, SECOND).is_some());
            let settled_at = debt.settled_at;
            let full = rate.figures(&mut debt, settled_at);
            assert_eq!(full, fresh);
        }
    }

    #[test]
    fn a_debt_beyond_the_burst_is_paid_off_at_the_rate() {
        let (rate, mut debt) = (Rate::new(1_000, 500).expect("a rate"), RateDebt::default());
        rate.charge(&mut debt, SECOND, 10_500);
        // 10,500 used and 1 more are 10,001 above the burst of 500: one a millisecond.
        assert_eq!(
            rate.wait_time(&mut debt, SECOND),
            Some(Duration::from_millis(10_001))
        );
        assert_eq!(rate.wait_time(&mut debt, 12 * SECOND), None);
    }

    #[test]
    fn a_debt_is_paid_off_at_a_new_rate_from_its_next_use_on() {
        let (slow, mut debt) = (Rate::new(1, 1).expect("a rate"), RateDebt::default());
        slow.charge(&mut debt, SECOND, 101);
        assert_eq!(slow.wait_time(&mut debt, SECOND), Some(101 * SECOND));
        // 101 used and 1 more are 101 above the burst of 1: ten a second.
        let fast = Rate::new(10, 1).expect("a rate");
        let wait = fast.wait_time(&mut debt, SECOND).expect("a debt is left");
        assert_eq!(wait, Duration::from_millis(10_100));
        assert_eq!(fast.wait_time(&mut debt, SECOND + wait), None);
        // That debt is paid off. 1 used and 1 more are 1 above the burst: one a second.
        slow.charge(&mut debt, SECOND + wait, 1);
        assert_eq!(slow.wait_time(&mut debt, SECOND + wait), Some(SECOND));
    }

    #[test]
    fn rate_zero_is_no_limit_and_burst_zero_allows_one() {
        assert!(Rate::new(0, 7).is_none());
        let rate = Rate::new(1, 0).expect("a rate");
        let mut debt = RateDebt::default();
        assert_eq!(rate.wait_time(&mut debt, Duration::ZERO), None);
    }
}
