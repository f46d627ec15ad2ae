//! A provider's prefix cache, ideal: whatever a call shares with the call before it, from its start on, was kept.

use serde::Serialize;

use super::prices::Prices;

/// Something in a context that stays as it is or changes as a whole: a message, as it was said or as its summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The same for the same content.
    pub(crate) identity: u64,
    pub(crate) tokens: u64,
}

/// What a conversation's calls have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Bill {
    pub(crate) calls: u64,
    /// Tokens of all contexts.
    pub(crate) sent: u64,
    /// Of these, tokens that the cache held.
    pub(crate) cached: u64,
    /// Calls that did not begin with all of the call before.
    pub(crate) breaks: u64,
}

impl Bill {
    /// What it comes to, in the price list's units.
    pub(crate) fn units(self, prices: Prices) -> u64 {
        prices.bill(self.sent, self.cached)
    }

    /// Share of the tokens that the cache held.
    pub(crate) fn hit(self) -> f64 {
        self.cached as f64 / self.sent.max(1) as f64
    }
}

impl std::ops::AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.sent += other.sent;
        self.cached += other.cached;
        self.breaks += other.breaks;
    }
}

/// The cache of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Vec<Piece>,
    bill: Bill,
}

impl Meter {
    /// A call with this context.
    pub(crate) fn call(&mut self, context: Vec<Piece>) {
        let shared = self.last.iter().zip(&context).take_while(|(last, now)| last == now).count();
        self.bill.calls += 1;
        self.bill.sent += tokens(&context);
        self.bill.cached += tokens(&context[..shared]);
        self.bill.breaks += u64::from(shared < self.last.len());
        self.last = context;
    }

    /// All calls so far.
    pub(crate) fn bill(&self) -> Bill {
        self.bill
    }
}

fn tokens(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.tokens).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece((identity, tokens): (u64, u64)) -> Piece {
        Piece { identity, tokens }
    }

    fn bill(calls: &[&[(u64, u64)]]) -> Bill {
        let mut meter = Meter::default();
        for call in calls {
            meter.call(call.iter().copied().map(piece).collect());
        }
        meter.bill()
    }

    #[test]
    fn what_a_call_shares_with_the_one_before_is_cached() {
        let grown = bill(&[&[(1, 10), (2, 5)], &[(1, 10), (2, 5), (3, 7)]]);
        assert_eq!(grown, Bill { calls: 2, sent: 37, cached: 15, breaks: 0 });
    }

    #[test]
    fn behind_a_change_everything_is_written_again() {
        let swapped = bill(&[&[(1, 10), (2, 50), (3, 7)], &[(1, 10), (20, 5), (3, 7), (4, 1)]]);
        assert_eq!(swapped, Bill { calls: 2, sent: 67 + 23, cached: 10, breaks: 1 });
    }

    #[test]
    fn a_context_that_only_lost_its_end_is_a_break_that_costs_nothing() {
        let cut = bill(&[&[(1, 10), (2, 5)], &[(1, 10)]]);
        assert_eq!(cut, Bill { calls: 2, sent: 25, cached: 10, breaks: 1 });
    }
}
