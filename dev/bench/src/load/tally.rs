//! Collects the results of calls from many concurrent tasks.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tonic::Status;
use tonic_types::StatusExt as _;

use super::Load;

/// Results are collected in several [`Load`]s, so that tasks rarely wait for the same lock.
const SHARDS: u64 = 4;

/// The results of one load's calls.
#[derive(Debug)]
pub(super) struct Tally(Vec<Mutex<Load>>);

impl Tally {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// Records the result of a call: `latency` (the time since it was due) if it succeeded, `took`
    /// (the time since it was started) if it failed. Calls with different shard keys rarely wait
    /// for the same lock: the key is the number of the call or of its caller.
    pub(super) fn record(
        &self,
        shard_key: u64,
        outcome: Result<(), Status>,
        latency: Duration,
        took: Duration,
    ) {
        self.with(shard_key, |load| match outcome {
            Ok(()) => load.latencies.record(latency),
            Err(status) => {
                let refusals = load.refusals.entry(status.code().into()).or_default();
                refusals.latencies.record(took);
                refusals.with_retry_info += u64::from(status.get_details_retry_info().is_some());
            }
        });
    }

    /// Records how late a call was started.
    pub(super) fn record_lateness(&self, shard_key: u64, by: Duration) {
        self.with(shard_key, |load| load.lateness.record(by));
    }

    /// Records calls that were never started.
    pub(super) fn record_not_offered(&self, calls: u64) {
        self.with(0, |load| load.not_offered += calls);
    }

    /// All results together, as a [`Load`] with this duration.
    pub(super) fn to_load(&self, time: Duration) -> Load {
        let mut all = Load {
            time,
            ..Load::default()
        };
        for shard in &self.0 {
            all.add(&shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    fn with(&self, shard_key: u64, change: impl FnOnce(&mut Load)) {
        let shard = &self.0[(shard_key % SHARDS) as usize];
        change(&mut shard.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
