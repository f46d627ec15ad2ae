//! A rate with bursts (the algorithm GCRA). What a tenant has used is its debt, which time pays off
//! at the rate. The debt is kept as the time at which it will be paid off.

use std::time::Duration;

/// An amount that may be used per second, and an amount that may be used at once (the burst).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    per_second: u64,
    /// The time in which a whole burst is paid off.
    burst_time: Duration,
}

/// The used amount that time has not yet paid off. It may exceed the burst: bytes that have arrived
/// cannot be sent back, so they delay the next ones.
#[derive(Debug, Default)]
pub(crate) struct RateDebt {
    /// When the debt is paid off, on the same clock as the parameter `now` of the methods.
    settled_at: Duration,
}

impl Rate {
    /// A rate. None if `per_second` is 0: no limit.
    pub(crate) fn new(per_second: u64, burst: u64) -> Option<Self> {
        let without_burst = Self {
            per_second,
            burst_time: Duration::ZERO,
        };
        (per_second > 0).then(|| Self {
            burst_time: without_burst.cost(burst.max(1)),
            ..without_burst
        })
    }

    /// The time in which the rate pays off this amount.
    fn cost(&self, amount: u64) -> Duration {
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long to wait until an amount of 1 may be used: until the debt with that amount is at
    /// most the burst. None: no wait.
    pub(crate) fn wait_time(&self, debt: &RateDebt, now: Duration) -> Option<Duration> {
        let debt_after_use = debt.settled_at.saturating_sub(now) + self.cost(1);
        debt_after_use
            .checked_sub(self.burst_time)
            .filter(|wait| !wait.is_zero())
    }

    /// Adds `amount` to the debt, whether or not the rate allows it.
    pub(crate) fn charge(&self, debt: &mut RateDebt, now: Duration, amount: u64) {
        debt.settled_at = debt.settled_at.max(now).saturating_add(self.cost(amount));
    }

    /// Takes `amount` off the debt.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let (rate, mut debt) = (Rate::new(10, 3).expect("a rate"), RateDebt::default());
        for _ in 0..3 {
            assert_eq!(rate.wait_time(&debt, SECOND), None);
            rate.charge(&mut debt, SECOND, 1);
        }
        let wait = rate.wait_time(&debt, SECOND).expect("the burst is spent");
        assert_eq!(wait, Duration::from_millis(100));
        assert!(rate.wait_time(&debt, SECOND + wait / 2).is_some());
        assert_eq!(rate.wait_time(&debt, SECOND + wait), None);
        // Three were used, and one is paid off in each tenth of a second.
        assert!(!debt.is_settled(SECOND + wait) && debt.is_settled(SECOND + 3 * wait));
    }

    #[test]
    fn a_debt_beyond_the_burst_is_paid_off_at_the_rate() {
        let (rate, mut debt) = (Rate::new(1_000, 500).expect("a rate"), RateDebt::default());
        rate.charge(&mut debt, SECOND, 10_500);
        // 10,500 used and 1 more are 10,001 above the burst of 500: one a millisecond.
        assert_eq!(
            rate.wait_time(&debt, SECOND),
            Some(Duration::from_millis(10_001))
        );
        assert_eq!(rate.wait_time(&debt, 12 * SECOND), None);
    }

    #[test]
    fn rate_zero_is_no_limit_and_burst_zero_allows_one() {
        assert!(Rate::new(0, 7).is_none());
        let rate = Rate::new(1, 0).expect("a rate");
        assert_eq!(rate.wait_time(&RateDebt::default(), Duration::ZERO), None);
    }
}
