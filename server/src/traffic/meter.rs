//! A rate with room for bursts, kept as time instead of tokens (GCRA): what is taken is paid off as time goes by.

use std::time::Duration;

/// How much of something a second, and how much at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    per_second: u64,
    /// How long what may be taken at once takes to be paid off.
    credit: Duration,
}

/// What was taken at a rate. It may be overdrawn: bytes that have come cannot be sent back, they delay what comes next.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// When everything is paid off, on the clock that `now` is read from.
    paid: Duration,
}

impl Rate {
    /// A rate; None where `per_second` is 0: there is no limit.
    pub(crate) fn new(per_second: u64, burst: u64) -> Option<Self> {
        let endless = Self { per_second, credit: Duration::ZERO };
        (per_second > 0).then(|| Self { credit: endless.cost(burst.max(1)), ..endless })
    }

    fn cost(&self, amount: u64) -> Duration {
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long to wait until one more may be taken; None: not at all.
    pub(crate) fn wait(&self, meter: &Meter, now: Duration) -> Option<Duration> {
        let owed = meter.paid.saturating_sub(now) + self.cost(1);
        owed.checked_sub(self.credit).filter(|wait| !wait.is_zero())
    }

    /// Takes so many, whether they may be taken or not.
    pub(crate) fn take(&self, meter: &mut Meter, now: Duration, amount: u64) {
        meter.paid = meter.paid.max(now).saturating_add(self.cost(amount));
    }

    /// Takes back that so many were taken.
    pub(crate) fn give_back(&self, meter: &mut Meter, amount: u64) {
        meter.paid = meter.paid.saturating_sub(self.cost(amount));
    }
}

impl Meter {
    /// Whether nothing is owed.
    pub(super) fn is_paid(&self, now: Duration) -> bool {
        self.paid <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_let_in_and_then_the_rate() {
        let (rate, mut meter) = (Rate::new(10, 3).expect("a rate"), Meter::default());
        for _ in 0..3 {
            assert_eq!(rate.wait(&meter, SECOND), None);
            rate.take(&mut meter, SECOND, 1);
        }
        let wait = rate.wait(&meter, SECOND).expect("the burst is spent");
        assert_eq!(wait, Duration::from_millis(100));
        assert!(rate.wait(&meter, SECOND + wait / 2).is_some());
        assert_eq!(rate.wait(&meter, SECOND + wait), None);
        assert!(!meter.is_paid(SECOND + wait) && meter.is_paid(SECOND + 3 * wait));
    }

    #[test]
    fn what_was_overdrawn_is_paid_off_at_the_rate() {
        let (rate, mut meter) = (Rate::new(1_000, 500).expect("a rate"), Meter::default());
        rate.take(&mut meter, SECOND, 10_500);
        assert_eq!(rate.wait(&meter, SECOND), Some(Duration::from_millis(10_001)));
        assert_eq!(rate.wait(&meter, 12 * SECOND), None);
    }

    #[test]
    fn nothing_a_second_is_no_limit_and_a_burst_of_nothing_is_one() {
        assert!(Rate::new(0, 7).is_none());
        let rate = Rate::new(1, 0).expect("a rate");
        assert_eq!(rate.wait(&Meter::default(), Duration::ZERO), None);
    }
}
