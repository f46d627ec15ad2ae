//! Which keys are used: noted in the database in the background, some seconds later, once an hour for each key.

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

/// How long uses are gathered before they are written, all with one statement.
const GATHER: Duration = Duration::from_secs(2);
/// A use is not written again for so long.
const WRITTEN_FOR: Duration = Duration::from_mins(30);
/// Keys that are remembered as written.
const REMEMBERED: u64 = 10_000;
/// Keys that wait to be written at most; others are noted when they are used next.
const WAITING: usize = 10_000;

/// The uses that are to be written.
pub(super) struct Uses {
    waiting: Mutex<HashSet<Uuid>>,
    wake: Notify,
    written: Cache<Uuid, ()>,
}

impl Uses {
    pub(super) fn new() -> Self {
        let written = Cache::builder().max_capacity(REMEMBERED).time_to_live(WRITTEN_FOR).build();
        Self { waiting: Mutex::default(), wake: Notify::new(), written }
    }

    /// Notes that a key is used. Never waits for the database.
    pub(super) fn note(&self, key: Uuid) {
        if self.written.contains_key(&key) {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING && waiting.insert(key) {
            self.wake.notify_one();
        }
    }

    /// Writes the uses, until the future is dropped. What cannot be written is noted again with the next use.
    pub(super) async fn write(&self, store: &Store) {
        loop {
            self.wake.notified().await;
            tokio::time::sleep(GATHER).await;
            let keys = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            let keys: Vec<Uuid> = keys.into_iter().collect();
            match store.note_key_uses(&keys).await {
                Ok(()) => keys.into_iter().for_each(|key| self.written.insert(key, ())),
                Err(error) => debug!("cannot note that {} keys were used: {error}", keys.len()),
            }
        }
    }
}
