//! Records when API keys are used: in the background, in batches. The database stores the hour.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anneal_store::Store;
use moka::sync::Cache;
use tokio::sync::Notify;
use tracing::debug;
use uuid::Uuid;

/// How long keys are collected before one statement writes them.
const BATCH_DELAY: Duration = Duration::from_secs(2);
/// How long a key that was written is not written again.
const WRITE_INTERVAL: Duration = Duration::from_mins(30);
/// Most keys whose last write is remembered.
const MAX_WRITTEN: u64 = 10_000;
/// Most keys that wait to be written. Further ones are recorded at their next use.
const MAX_PENDING: usize = 10_000;

/// Collects the ids of used keys.
pub(super) struct KeyUsage {
    /// Keys whose use is to be written.
    pending: Mutex<HashSet<Uuid>>,
    wake: Notify,
    /// Keys that were written in the last [`WRITE_INTERVAL`].
    written: Cache<Uuid, ()>,
}

impl KeyUsage {
    pub(super) fn new() -> Self {
        let written = Cache::builder()
            .max_capacity(MAX_WRITTEN)
            .time_to_live(WRITE_INTERVAL)
            .build();
        Self {
            pending: Mutex::default(),
            wake: Notify::new(),
            written,
        }
    }

    /// Notes that a key is used, for [`Self::run`] to write. Does not wait for the database.
    pub(super) fn record(&self, key: Uuid) {
        if self.written.contains_key(&key) {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_PENDING && pending.insert(key) {
            self.wake.notify_one();
        }
    }

    /// Writes the noted keys, until the future is dropped. Keys of a failed write are noted again
    /// at their next use.
    pub(super) async fn run(&self, store: &Store) {
        loop {
            self.wake.notified().await;
            tokio::time::sleep(BATCH_DELAY).await;
            let keys =
                std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
            let keys: Vec<Uuid> = keys.into_iter().collect();
            match store.record_key_uses(&keys).await {
                Ok(()) => keys
                    .into_iter()
                    .for_each(|key| self.written.insert(key, ())),
                Err(error) => debug!("cannot record that {} keys were used: {error}", keys.len()),
            }
        }
    }
}
