//! What calls came to, noted by many tasks at once.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tonic::Status;
use tonic_types::StatusExt as _;

use super::Load;

/// Loads that are noted side by side, so that tasks seldom meet.
const SHARDS: u64 = 4;

/// The calls of one load.
#[derive(Debug)]
pub(super) struct Tally(Vec<Mutex<Load>>);

impl Tally {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// Notes the outcome of a call: `latency` where it succeeded, `took` since it was begun where it did not.
    pub(super) fn note(&self, number: u64, outcome: Result<(), Status>, latency: Duration, took: Duration) {
        self.with(number, |load| match outcome {
            Ok(()) => load.latencies.record(latency),
            Err(status) => {
                let refusals = load.refusals.entry(status.code().into()).or_default();
                refusals.latencies.record(took);
                refusals.with_retry_info += u64::from(status.get_details_retry_info().is_some());
            }
        });
    }

    /// Notes how late a call began.
    pub(super) fn late(&self, number: u64, by: Duration) {
        self.with(number, |load| load.lateness.record(by));
    }

    /// Notes calls that were never begun.
    pub(super) fn not_offered(&self, calls: u64) {
        self.with(0, |load| load.not_offered += calls);
    }

    /// All calls together, as the load of this time.
    pub(super) fn load(&self, time: Duration) -> Load {
        let mut all = Load { time, ..Load::default() };
        for shard in &self.0 {
            all.add(&shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    fn with(&self, number: u64, note: impl FnOnce(&mut Load)) {
        let shard = &self.0[(number % SHARDS) as usize];
        note(&mut shard.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
