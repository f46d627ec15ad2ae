//! What the database says of credentials, remembered for a while. Whoever makes credentials up must not keep those waiting
//! who have one: the two ask in rooms of their own, and what was known is believed for a little longer while the database
//! is too busy to say it again.

use std::{
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_store::StoreError;
use futures::future::BoxFuture;
use moka::future::Cache;
use tokio::{sync::Semaphore, time::timeout};
use tracing::warn;

use crate::status::Failure;

/// What the database says of a credential is believed for so long: until then a revoked key may still be taken.
pub(super) const BELIEVED: Duration = Duration::from_secs(10);
/// So much longer is believed what cannot be asked again: 30 s from the last answer.
const BELIEVED_UNASKED: Duration = Duration::from_secs(20);
/// Credentials and tenants that are remembered at once, and as many that are known not to be there.
const REMEMBERED: u64 = 10_000;
/// Lookups at once of what was not known lately: half of the connections that there are for lookups by default
/// (`database.system_connections`).
const OF_STRANGERS: usize = 2;
/// Lookups at once of what was known.
const OF_KNOWN: usize = 4;
/// How long a lookup may wait for room, and how long somebody who is known waits for its answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Room for lookups. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lookups {
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
    unanswered: Arc<Mutex<Unanswered>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            strangers: Arc::new(Semaphore::new(OF_STRANGERS)),
            known: Arc::new(Semaphore::new(OF_KNOWN)),
            unanswered: Arc::default(),
        }
    }
}

/// Lookups that came to nothing, of which the log hears once a second.
#[derive(Default)]
struct Unanswered {
    told: Option<Instant>,
    since: u64,
}

impl Lookups {
    fn note(&self, error: &StoreError) {
        metrics::counter!("credential_lookups_unanswered_total").increment(1);
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.since += 1;
        if unanswered.told.is_none_or(|told| told.elapsed() >= Duration::from_secs(1)) {
            let lookups = unanswered.since;
            *unanswered = Unanswered { told: Some(Instant::now()), since: 0 };
            drop(unanswered);
            warn!(lookups, "cannot look up credentials, {lookups} times since this was last said: {error}");
        }
    }
}

/// What is known by keys of one kind.
pub(super) struct Memory<K, V> {
    lookups: Lookups,
    /// What the database has just said, be it that there is nothing.
    said: Cache<K, Option<V>>,
    /// What it has said is there. Apart, so that no number of strangers drives it out.
    had: Cache<K, V>,
}

impl<K, V> Memory<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new(lookups: Lookups) -> Self {
        Self {
            lookups,
            said: Cache::builder().max_capacity(REMEMBERED).time_to_live(BELIEVED).build(),
            had: Cache::builder().max_capacity(REMEMBERED).time_to_live(BELIEVED + BELIEVED_UNASKED).build(),
        }
    }

    /// Whether the database need not be asked now, or has lately said that it is there.
    pub(super) fn remembers(&self, key: &K) -> bool {
        self.said.contains_key(key) || self.had.contains_key(key)
    }

    /// What the database says of it; `asked` asks. Many who want the same at once ask once. Nobody who is known waits longer
    /// than a second, while the database is asked on: what it says is for whoever comes next.
    pub(super) async fn find(
        &self,
        key: K,
        asked: BoxFuture<'static, Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, Failure> {
        if let Some(said) = self.said.get(&key).await {
            return Ok(said);
        }
        let before = self.had.get(&key).await;
        let room = if before.is_some() { &self.lookups.known } else { &self.lookups.strangers };
        let asking = tokio::spawn(ask(Arc::clone(room), self.said.clone(), self.had.clone(), key, asked));
        let patience = if before.is_some() { PATIENCE } else { Duration::MAX };
        let error = match timeout(patience, asking).await {
            Ok(Ok(Ok(said))) => return Ok(said),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) | Err(_) => Arc::new(StoreError::Silent),
        };
        self.lookups.note(&error);
        before.map(Some).ok_or_else(|| Failure::of_shared(&error))
    }
}

/// Asks, once there is room for it, and keeps what is said.
async fn ask<K, V>(
    room: Arc<Semaphore>,
    said: Cache<K, Option<V>>,
    had: Cache<K, V>,
    key: K,
    asked: BoxFuture<'static, Result<Option<V>, StoreError>>,
) -> Result<Option<V>, Arc<StoreError>>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let once = async {
        let _place = timeout(PATIENCE, room.acquire()).await.map_err(|_| StoreError::Busy)?;
        let found = asked.await?;
        match &found {
            Some(there) => had.insert(key.clone(), there.clone()).await,
            None => had.invalidate(&key).await,
        }
        Ok::<_, StoreError>(found)
    };
    Box::pin(said.try_get_with(key.clone(), once)).await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    fn says(said: Result<Option<u8>, StoreError>) -> BoxFuture<'static, Result<Option<u8>, StoreError>> {
        ready(said).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_who_wait_for_the_database_keep_no_known_one_waiting() {
        let lookups = Lookups::default();
        let (known, flooded) = (Memory::new(lookups.clone()), Arc::new(Memory::<u32, u8>::new(lookups)));
        assert_eq!(known.find(1, says(Ok(Some(7)))).await.ok(), Some(Some(7)));
        known.said.invalidate(&1).await;
        let mut flood = tokio::task::JoinSet::new();
        for key in 0..100 {
            let flooded = Arc::clone(&flooded);
            flood.spawn(async move { flooded.find(key, pending().boxed()).await.is_err() });
        }
        while flooded.lookups.strangers.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(known.find(1, says(Ok(Some(8)))).await.ok(), Some(Some(8)), "there is room for whom we know");
        for _ in OF_STRANGERS..100 {
            assert!(flood.join_next().await.expect("there are more").expect("ends"), "others are told to come again");
        }
    }

    #[tokio::test]
    async fn what_was_known_is_believed_while_it_cannot_be_asked_again_and_no_more_once_it_was() {
        let memory = Memory::new(Lookups::default());
        assert_eq!(memory.find(1, says(Ok(Some(7)))).await.ok(), Some(Some(7)));
        memory.said.invalidate(&1).await;
        assert_eq!(memory.find(1, says(Err(StoreError::Busy))).await.ok(), Some(Some(7)));
        assert_eq!(memory.find(1, says(Ok(None))).await.ok(), Some(None), "it was revoked");
        memory.said.invalidate(&1).await;
        assert!(memory.find(1, says(Err(StoreError::Busy))).await.is_err(), "and is not known any more");
    }
}
