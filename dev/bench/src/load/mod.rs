//! Generates load. A load makes calls with a function that gets the number of the call; no two
//! calls of one load have the same number.
//!
//! - `closed`: a number of callers call as fast as they can.
//! - `open`: calls at a rate that does not depend on the answers.
//! - `background`: runs a load at the lowest priority.
//! - `tally`: collects the results.

mod background;
mod closed;
mod open;
mod tally;

use std::{collections::BTreeMap, time::Duration};

pub(crate) use background::Background;
pub(crate) use closed::ClosedLoop;
pub(crate) use open::OpenLoop;

use crate::latencies::Latencies;

/// The results of a load, without the warm-up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// Duration of the measurement. For an open loop: the time in which the calls were started.
    pub(crate) time: Duration,
    /// Latencies of the calls that succeeded. In an open loop they are measured from the time at
    /// which a call was due, so that a delay in the generator or in a full connection counts as
    /// latency, as it would for a real caller.
    pub(crate) latencies: Latencies,
    /// The calls that failed, by status code. They count as refused, whatever the code.
    pub(crate) refusals: BTreeMap<i32, Refusals>,
    /// How late the generator started calls. Empty in a closed loop, where calls have no schedule.
    pub(crate) lateness: Latencies,
    /// Calls of an open loop that were due but were not started, because the maximum number of
    /// calls was in progress.
    pub(crate) not_offered: u64,
}

/// Calls that failed with one status code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals {
    /// Latencies from the time at which a call was started: a server is supposed to refuse quickly.
    pub(crate) latencies: Latencies,
    /// How many of the failures contained a RetryInfo.
    pub(crate) with_retry_info: u64,
}

impl Load {
    /// Successful calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.time.as_secs_f64()
    }

    /// Started calls per second, whatever their result.
    pub(crate) fn begun_rate(&self) -> f64 {
        (self.latencies.count() + self.refused()) as f64 / self.time.as_secs_f64()
    }

    /// Number of calls that failed.
    pub(crate) fn refused(&self) -> u64 {
        self.refusals
            .values()
            .map(|refusals| refusals.latencies.count())
            .sum()
    }

    /// Returns the load unchanged, or an error if any call failed or could not be started.
    pub(crate) fn require_success(self) -> anyhow::Result<Self> {
        let codes = || {
            self.refusals
                .iter()
                .map(|(code, calls)| (tonic::Code::from_i32(*code), calls.latencies.count()))
        };
        anyhow::ensure!(
            self.refused() == 0,
            "calls were refused: {:?}",
            codes().collect::<Vec<_>>()
        );
        anyhow::ensure!(
            self.not_offered == 0,
            "{} calls were not started, because too many were in progress",
            self.not_offered
        );
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
