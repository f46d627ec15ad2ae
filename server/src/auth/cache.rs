//! A cache of what the database says about credentials. Lookups of unknown and of known credentials
//! have separate limits, so that invented credentials do not delay valid ones. While the database
//! does not answer, a known credential is accepted 20 s longer.

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_store::{OutageLog, StoreError};
use futures::future::BoxFuture;
use moka::future::Cache;
use tokio::{sync::Semaphore, time::timeout};
use tracing::warn;

use crate::failure::Failure;

/// How long an answer of the database is used. A revoked key is accepted until then.
pub(super) const CACHE_TTL: Duration = Duration::from_secs(10);
/// How much longer a known credential is used while the database does not answer: 30 s in all.
const STALE_TTL: Duration = Duration::from_secs(20);
/// How long it is remembered that this server has ended a credential: longer than a lookup lasts
/// that began before, and than the caches keep its answer.
const ENDED_TTL: Duration = Duration::from_mins(5);
/// Most entries of each of the two caches of a [`CredentialCache`].
const CACHE_ENTRIES: u64 = 10_000;
/// Most concurrent lookups of credentials that are not in the cache. This is half of the default of
/// `database.system_connections`, the connections for lookups.
const UNKNOWN_LOOKUPS: usize = 2;
/// Most concurrent lookups of known credentials whose last answer is older than [`CACHE_TTL`].
const KNOWN_LOOKUPS: usize = 4;
/// How long a lookup waits for a permit, and how long a known credential waits for the answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits for concurrent lookups, and the log of failed ones. Cheap to clone.
#[derive(Clone)]
pub(super) struct LookupLimits {
    unknown: Arc<Semaphore>,
    known: Arc<Semaphore>,
    failures: Arc<Mutex<FailureLog>>,
    outage_log: OutageLog,
}

/// Failed lookups since the last log line, without those that an outage of the database caused. At
/// most one line a minute is logged.
#[derive(Default)]
struct FailureLog {
    last_logged: Option<Instant>,
    count: u64,
}

impl LookupLimits {
    /// Limits for lookups in the database whose outages this log records.
    pub(super) fn new(outage_log: OutageLog) -> Self {
        Self {
            unknown: Arc::new(Semaphore::new(UNKNOWN_LOOKUPS)),
            known: Arc::new(Semaphore::new(KNOWN_LOOKUPS)),
            failures: Arc::default(),
            outage_log,
        }
    }

    fn log_failure(&self, error: &StoreError) {
        metrics::counter!("anneal_credential_lookups_unanswered_total").increment(1);
        if self.outage_log.count(error) {
            return;
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.count += 1;
        if failures
            .last_logged
            .is_none_or(|last_logged| last_logged.elapsed() >= Duration::from_mins(1))
        {
            let lookups = failures.count;
            *failures = FailureLog {
                last_logged: Some(Instant::now()),
                count: 0,
            };
            drop(failures);
            warn!(
                lookups,
                "cannot look up credentials, {lookups} times since the last such line: {error}"
            );
        }
    }
}

/// A cache for one kind of credential.
pub(super) struct CredentialCache<K, V> {
    limits: LookupLimits,
    /// Recent answers of the database, for [`CACHE_TTL`]. None: the credential does not exist.
    answers: Cache<K, Option<V>>,
    /// Credentials that exist, for [`STALE_TTL`] longer than `answers`. A separate cache, so that
    /// unknown credentials cannot evict them.
    known_values: Cache<K, V>,
    /// Credentials that this server has ended. A lookup that was under way then may still put an
    /// earlier answer into the other caches.
    ended: Cache<K, ()>,
}

/// There is no recent answer of the database.
pub(super) struct NotCached;

impl<K, V> CredentialCache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new(limits: LookupLimits) -> Self {
        Self {
            limits,
            answers: Cache::builder()
                .max_capacity(CACHE_ENTRIES)
                .time_to_live(CACHE_TTL)
                .build(),
            known_values: Cache::builder()
                .max_capacity(CACHE_ENTRIES)
                .time_to_live(CACHE_TTL + STALE_TTL)
                .build(),
            ended: Cache::builder()
                .max_capacity(CACHE_ENTRIES)
                .time_to_live(ENDED_TTL)
                .build(),
        }
    }

    /// The database's recent answer, for which nothing has to be prepared.
    pub(super) async fn peek<Q>(&self, key: &Q) -> Result<Option<V>, NotCached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if self.ended.contains_key(key) {
            return Ok(None);
        }
        self.answers.get(key).await.ok_or(NotCached)
    }

    /// Whether an answer is cached, or the credential is known to have existed recently.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.answers.contains_key(key) || self.known_values.contains_key(key)
    }

    /// Forgets an answer, because this server has changed the credential.
    pub(super) async fn forget(&self, key: &K) {
        self.answers.invalidate(key).await;
        self.known_values.invalidate(key).await;
    }

    /// Makes a credential unknown that this server has ended for ever.
    pub(super) async fn end(&self, key: &K) {
        self.ended.insert(key.clone(), ()).await;
        self.forget(key).await;
    }

    /// The value of a credential, from the cache or with `lookup`. Concurrent calls for one key
    /// share a lookup. If it fails or takes longer than a second, a known credential keeps its
    /// value. A lookup that takes longer goes on, and fills the cache for later calls.
    pub(super) async fn find(
        &self,
        key: K,
        lookup: BoxFuture<'static, Result<Option<V>, StoreError>>,
    ) -> Result<Option<V>, Failure> {
        if let Ok(answer) = self.peek(&key).await {
            return Ok(answer);
        }
        let known_value = self.known_values.get(&key).await;
        let permits = if known_value.is_some() {
            &self.limits.known
        } else {
            &self.limits.unknown
        };
        let lookup_task = tokio::spawn(look_up(
            Arc::clone(permits),
            self.answers.clone(),
            self.known_values.clone(),
            key.clone(),
            lookup,
        ));
        let timeout_after = if known_value.is_some() {
            LOOKUP_TIMEOUT
        } else {
            Duration::MAX
        };
        let error = match timeout(timeout_after, lookup_task).await {
            Ok(Ok(Ok(answer))) => return Ok(answer.filter(|_| !self.ended.contains_key(&key))),
            Ok(Ok(Err(error))) => error,
            // The task panicked, or the timeout has passed.
            Ok(Err(_)) | Err(_) => Arc::new(StoreError::Unresponsive),
        };
        self.limits.log_failure(&error);
        known_value
            .filter(|_| !self.ended.contains_key(&key))
            .map(Some)
            .ok_or_else(|| Failure::of_shared(&error))
    }
}

/// Runs a lookup under a permit, and stores the answer in both caches.
async fn look_up<K, V>(
    permits: Arc<Semaphore>,
    answers: Cache<K, Option<V>>,
    known_values: Cache<K, V>,
    key: K,
    lookup: BoxFuture<'static, Result<Option<V>, StoreError>>,
) -> Result<Option<V>, Arc<StoreError>>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let load = async {
        let _permit = timeout(LOOKUP_TIMEOUT, permits.acquire())
            .await
            .map_err(|_| StoreError::Busy)?;
        let found = lookup.await?;
        match &found {
            Some(value) => known_values.insert(key.clone(), value.clone()).await,
            None => known_values.invalidate(&key).await,
        }
        Ok::<_, StoreError>(found)
    };
    Box::pin(answers.try_get_with(key.clone(), load)).await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    fn answer(
        result: Result<Option<u8>, StoreError>,
    ) -> BoxFuture<'static, Result<Option<u8>, StoreError>> {
        ready(result).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_of_unknown_credentials_do_not_delay_known_ones() {
        let lookups = LookupLimits::new(OutageLog::new("127.0.0.1:5432"));
        let (known, flooded) = (
            CredentialCache::new(lookups.clone()),
            Arc::new(CredentialCache::<u32, u8>::new(lookups)),
        );
        assert_eq!(known.find(1, answer(Ok(Some(7)))).await.ok(), Some(Some(7)));
        known.answers.invalidate(&1).await;
        let mut flood = tokio::task::JoinSet::new();
        for key in 0..100 {
            let flooded = Arc::clone(&flooded);
            flood.spawn(async move { flooded.find(key, pending().boxed()).await.is_err() });
        }
        while flooded.limits.unknown.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            known.find(1, answer(Ok(Some(8)))).await.ok(),
            Some(Some(8)),
            "known credentials have permits of their own"
        );
        // All but the lookups that hold a permit: those never end.
        for _ in UNKNOWN_LOOKUPS..100 {
            assert!(
                flood
                    .join_next()
                    .await
                    .expect("a lookup has not ended yet")
                    .expect("ends"),
                "a lookup of an unknown credential fails if it gets no permit"
            );
        }
    }

    #[tokio::test]
    async fn a_known_credential_is_served_stale_while_lookups_fail_but_not_after_revocation() {
        let lookups = LookupLimits::new(OutageLog::new("127.0.0.1:5432"));
        let cache = CredentialCache::new(lookups);
        assert_eq!(cache.find(1, answer(Ok(Some(7)))).await.ok(), Some(Some(7)));
        cache.answers.invalidate(&1).await;
        assert_eq!(
            cache.find(1, answer(Err(StoreError::Busy))).await.ok(),
            Some(Some(7))
        );
        assert_eq!(
            cache.find(1, answer(Ok(None))).await.ok(),
            Some(None),
            "it was revoked"
        );
        cache.answers.invalidate(&1).await;
        assert!(
            cache.find(1, answer(Err(StoreError::Busy))).await.is_err(),
            "a revoked credential is not served from the cache"
        );
    }

    #[tokio::test]
    async fn a_lookup_that_was_under_way_does_not_bring_back_an_ended_credential() {
        let lookups = LookupLimits::new(OutageLog::new("127.0.0.1:5432"));
        let cache = Arc::new(CredentialCache::new(lookups));
        let (found, lookup) = tokio::sync::oneshot::channel();
        let lookup = async move { Ok(lookup.await.ok()) };
        let caller = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.find(1, lookup.boxed()).await.ok() }
        });
        while cache.limits.unknown.available_permits() == UNKNOWN_LOOKUPS {
            tokio::task::yield_now().await;
        }
        cache.end(&1).await;
        found.send(7).expect("is waited for");
        assert_eq!(caller.await.expect("ends"), Some(None));
        assert_eq!(cache.peek(&1).await.ok(), Some(None));
        assert_eq!(cache.find(1, answer(Ok(Some(7)))).await.ok(), Some(None));
    }
}
