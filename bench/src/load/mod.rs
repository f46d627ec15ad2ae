//! Load: calls as fast as a number of callers can ([`closed`]), or at a rate that no answer slows down ([`open`]). A call is
//! a function of its number, which no two calls of one load share.

mod background;
mod closed;
mod open;
mod tally;

use std::{collections::BTreeMap, time::Duration};

pub(crate) use background::Background;
pub(crate) use closed::Closed;
pub(crate) use open::Open;

use crate::latencies::Latencies;

/// What a load came to, warm-up excluded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// How long it was measured: in an open loop, how long it took to begin the calls.
    pub(crate) time: Duration,
    /// Of the calls that succeeded. In an open loop from the moment at which a call should have begun, so that one that the
    /// generator or a full connection held up is as slow as a caller would have found it.
    pub(crate) latencies: Latencies,
    /// Of the other calls, by code.
    pub(crate) refusals: BTreeMap<i32, Refusals>,
    /// How late the generator began calls; none in a closed loop, where calls begin when they can.
    pub(crate) lateness: Latencies,
    /// Calls that an open loop should have begun but could not, because as many as it may were under way.
    pub(crate) not_offered: u64,
}

/// Calls that came back with one code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals {
    /// From the moment at which the call was begun: a refusal's promise is that it comes at once.
    pub(crate) latencies: Latencies,
    /// How many said when to come back.
    pub(crate) with_retry_info: u64,
}

impl Load {
    /// Calls per second that succeeded.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.time.as_secs_f64()
    }

    /// Calls per second that were begun, whatever came of them.
    pub(crate) fn begun(&self) -> f64 {
        (self.latencies.count() + self.refused()) as f64 / self.time.as_secs_f64()
    }

    /// Calls that came back with another code than OK.
    pub(crate) fn refused(&self) -> u64 {
        self.refusals.values().map(|refusals| refusals.latencies.count()).sum()
    }

    /// The same load; an error where a call failed or could not be offered.
    pub(crate) fn clean(self) -> anyhow::Result<Self> {
        let codes =
            || self.refusals.iter().map(|(code, calls)| (tonic::Code::from_i32(*code), calls.latencies.count()));
        anyhow::ensure!(self.refused() == 0, "calls were refused: {:?}", codes().collect::<Vec<_>>());
        anyhow::ensure!(self.not_offered == 0, "{} calls found no room in the generator", self.not_offered);
        Ok(self)
    }

    /// Adds all calls of `other`, which were made in the same time.
    fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.lateness.add(&other.lateness);
        self.not_offered += other.not_offered;
        for (code, theirs) in &other.refusals {
            let ours = self.refusals.entry(*code).or_default();
            ours.latencies.add(&theirs.latencies);
            ours.with_retry_info += theirs.with_retry_info;
        }
    }
}
