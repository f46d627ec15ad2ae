//! The watched conversations of this process, and the poll that reads the heads of all of them. A
//! head says how far a conversation has got: its newest message, last counted message, last change
//! and dead jobs. `usecases/watch/` runs the watches.
//!
//! - `budget`: limits the bytes of messages that all watchers hold

mod budget;

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::{ConversationHead, Store, StoreError};
use futures::FutureExt as _;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(crate) use self::budget::BudgetPermit;

use self::budget::WatchBudget;
use crate::{
    failure::Failure,
    limits::concurrency::{ConcurrencyLimit, Permit, TenantShare},
    reason::Reason,
    settings::ServerSettings,
};

/// Most pages that watchers read at the same time, so that connections are left for ordinary calls.
const MAX_CONCURRENT_READS: usize = 4;
/// Least time between two polls that appends of this process cause.
const MIN_HINT_INTERVAL: Duration = Duration::from_millis(10);
/// How long the database may be unavailable before watches end.
const MAX_DB_OUTAGE: Duration = Duration::from_mins(1);

/// Deadline of reading heads. Without it, TCP would wait a quarter of an hour for a host that has
/// vanished.
pub(crate) const HEADS_TIMEOUT: Duration = Duration::from_secs(5);
/// Deadline of reading a page: enough for one message of 64 MiB over 30 Mbit/s.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

type Key = (TenantId, ConversationId);

/// The heads of conversations. Deleted conversations are missing.
type Heads = HashMap<Key, ConversationHead>;

/// What the last poll has found for one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeadUpdate {
    /// Not polled yet.
    NotPolled,
    /// The conversation's head.
    Head(ConversationHead),
    /// The conversation does not exist.
    Gone,
    /// The database has been unavailable for [`MAX_DB_OUTAGE`].
    DatabaseAway,
}

/// The watched conversations of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WatchRegistry(Arc<Inner>);

struct Inner {
    /// Time between two polls.
    poll_interval: Duration,
    /// How long a reader may take no event.
    stall_timeout: Duration,
    watch_limit: ConcurrencyLimit,
    read_limit: ConcurrencyLimit,
    budget: WatchBudget,
    stopping: CancellationToken,
    watched: Mutex<HashMap<Key, watch::Sender<HeadUpdate>>>,
    /// Watched conversations to which this process has appended since the last poll.
    hinted: Mutex<HashSet<Key>>,
    /// Wakes the poll: a conversation is hinted or newly watched.
    wake: Notify,
}

impl WatchRegistry {
    pub(crate) fn new(settings: &ServerSettings, tenant_share: TenantShare) -> Self {
        Self(Arc::new(Inner {
            poll_interval: Duration::from_millis(u64::from(settings.watch_poll_ms)),
            stall_timeout: Duration::from_secs(u64::from(settings.watch_stall_seconds)),
            watch_limit: ConcurrencyLimit::new(settings.concurrent_watches as usize, tenant_share),
            read_limit: ConcurrencyLimit::new(MAX_CONCURRENT_READS, tenant_share),
            budget: WatchBudget::new(tenant_share),
            stopping: CancellationToken::new(),
            watched: Mutex::default(),
            hinted: Mutex::default(),
            wake: Notify::new(),
        }))
    }

    /// The concurrency limit of watches.
    pub(crate) fn limit(&self) -> &ConcurrencyLimit {
        &self.0.watch_limit
    }

    /// Ends every watch, also those that begin later, because the server stops.
    pub(crate) fn stop(&self) {
        self.0.stopping.cancel();
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// How long a reader may take no event.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.0.stall_timeout
    }

    /// The budget of bytes that watchers hold.
    pub(crate) fn budget(&self) -> &WatchBudget {
        &self.0.budget
    }

    /// Runs a query for a watcher when a permit for reads is free. Retries while the database is
    /// unavailable, for at most [`MAX_DB_OUTAGE`].
    pub(crate) async fn read<T, R>(
        &self,
        tenant: TenantId,
        query: impl Fn() -> R,
    ) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        let until = Instant::now() + MAX_DB_OUTAGE;
        loop {
            let permit = self.acquire_read(tenant, until).await?;
            let failure = match Box::pin(query()).await {
                Ok(read) => return Ok(read),
                Err(error) => Failure::from(error),
            };
            drop(permit);
            let is_transient = matches!(
                failure.reason(),
                Reason::DatabaseUnavailable | Reason::TransactionConflict
            );
            if !is_transient || Instant::now() > until {
                return Err(failure);
            }
            tokio::time::sleep(self.0.poll_interval).await;
        }
    }

    /// Waits for a permit for reads. Fails at `until`: while the database is unavailable, other
    /// watchers may hold all permits for that long.
    async fn acquire_read(&self, tenant: TenantId, until: Instant) -> Result<Permit, Failure> {
        timeout_at(until, self.0.read_limit.acquire(tenant, 1))
            .await
            .map_err(|_| StoreError::Unresponsive)?
    }

    /// Tells the poll that this process has appended to a conversation, so that the watchers of the
    /// conversation do not wait for the next interval.
    pub(crate) fn hint(&self, caller: Caller, id: ConversationId) {
        let key = (caller.tenant(), id);
        if self.watched().contains_key(&key) {
            lock(&self.0.hinted).insert(key);
            self.0.wake.notify_one();
        }
    }

    /// Adds a watcher. The poll reads the conversation's head from now on.
    pub(crate) fn subscribe(&self, caller: Caller, id: ConversationId) -> Subscription {
        let key = (caller.tenant(), id);
        let update = self
            .watched()
            .entry(key)
            .or_insert_with(|| watch::channel(HeadUpdate::NotPolled).0)
            .subscribe();
        metrics::gauge!("anneal_watchers").increment(1.0);
        self.0.wake.notify_one();
        Subscription {
            registry: self.clone(),
            key,
            update: Some(update),
        }
    }

    /// Polls until the future is dropped. Reads the heads of all watched conversations at each
    /// interval, and at once the head of a conversation to which this process has appended. Does
    /// not query the database while nothing is watched.
    pub(crate) async fn run(&self, store: Store) {
        let store = Arc::new(store.with_deadline(HEADS_TIMEOUT));
        self.poll(|keys: Arc<[Key]>| {
            let store = Arc::clone(&store);
            async move {
                let heads = store.read_heads(&keys).await;
                heads.inspect_err(|error| {
                    store.log_failure(error, || {
                        warn!(
                            "could not read the heads of {} watched conversations, trying again: {error}",
                            keys.len()
                        );
                    });
                })
            }
        })
        .await;
    }

    async fn poll<A>(&self, read_heads: impl Fn(Arc<[Key]>) -> A)
    where
        A: Future<Output = Result<Heads, StoreError>>,
    {
        let mut ticks = interval(self.0.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_answer = Instant::now();
        loop {
            if self.watched().is_empty() {
                self.0.wake.notified().await;
                last_answer = Instant::now();
            }
            tokio::select! {
                _ = ticks.tick() => {
                    let all = self.watched().keys().copied().collect();
                    lock(&self.0.hinted).clear();
                    self.poll_once(&read_heads, all, &mut last_answer).await;
                }
                () = self.0.wake.notified() => {
                    let hinted = lock(&self.0.hinted).drain().collect();
                    self.poll_once(&read_heads, hinted, &mut last_answer).await;
                    tokio::time::sleep(MIN_HINT_INTERVAL).await;
                }
            }
        }
    }

    /// Reads the heads of these conversations in one statement and publishes them. After a failure,
    /// which `read_heads` has logged, the next poll tries again. `last_answer` is when the database
    /// last answered.
    async fn poll_once<A>(
        &self,
        read_heads: &impl Fn(Arc<[Key]>) -> A,
        keys: Arc<[Key]>,
        last_answer: &mut Instant,
    ) where
        A: Future<Output = Result<Heads, StoreError>>,
    {
        if keys.is_empty() {
            return;
        }
        metrics::counter!("anneal_watch_polls_total").increment(1);
        let result = AssertUnwindSafe(Box::pin(read_heads(Arc::clone(&keys))))
            .catch_unwind()
            .await;
        match result.map_or(Err(Failure::Panicked), |heads| heads.map_err(Failure::from)) {
            Ok(mut heads) => {
                *last_answer = Instant::now();
                for key in keys.iter().copied() {
                    self.publish(
                        key,
                        heads
                            .remove(&key)
                            .map_or(HeadUpdate::Gone, HeadUpdate::Head),
                    );
                }
            }
            Err(_) => {
                if last_answer.elapsed() > MAX_DB_OUTAGE {
                    for key in keys.iter().copied() {
                        self.publish(key, HeadUpdate::DatabaseAway);
                    }
                }
            }
        }
    }

    /// Tells the watchers of a conversation what was found, if that is new. A conversation that is
    /// gone is no longer watched.
    fn publish(&self, key: Key, found: HeadUpdate) {
        let mut watched = self.watched();
        let Some(update) = watched.get(&key) else {
            return;
        };
        let is_gone = found == HeadUpdate::Gone;
        update.send_if_modified(|update| {
            let is_new = *update != found;
            *update = found;
            is_new
        });
        if is_gone {
            watched.remove(&key);
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<HeadUpdate>>> {
        lock(&self.0.watched)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One watcher's subscription to a conversation. When the last one is dropped, the poll no longer
/// reads the conversation.
pub(crate) struct Subscription {
    registry: WatchRegistry,
    key: Key,
    update: Option<watch::Receiver<HeadUpdate>>,
}

impl Subscription {
    /// Waits for the next update. Updates in between are skipped: the newest head includes them.
    pub(crate) async fn next(&mut self) -> HeadUpdate {
        let Some(update) = &mut self.update else {
            return HeadUpdate::Gone;
        };
        match update.changed().await {
            Ok(()) => update.borrow_and_update().clone(),
            Err(_) => HeadUpdate::Gone,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        metrics::gauge!("anneal_watchers").decrement(1.0);
        self.update = None;
        let mut watched = self.registry.watched();
        if watched
            .get(&self.key)
            .is_some_and(|update| update.receiver_count() == 0)
        {
            watched.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use uuid::Uuid;

    use super::*;

    fn subscribe(registry: &WatchRegistry) -> Subscription {
        registry.subscribe(
            Caller::of(TenantId(Uuid::nil())),
            ConversationId(Uuid::nil()),
        )
    }

    /// A call whose database does not answer. It fails after the deadline of its store.
    async fn silence<T>(deadline: Duration) -> Result<T, StoreError> {
        tokio::time::sleep(deadline).await;
        Err(StoreError::Unresponsive)
    }

    #[tokio::test(start_paused = true)]
    async fn polls_go_on_after_a_panic_and_a_database_that_stops_answering() {
        let registry = WatchRegistry::new(&ServerSettings::default(), TenantShare::Whole);
        let mut subscription = subscribe(&registry);
        let (queries, begun) = (AtomicUsize::new(0), Instant::now());
        let poll = registry.poll(|_| async {
            match queries.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("a bug"),
                // 19 queries of 5 s take longer than `MAX_DB_OUTAGE`.
                1..20 => silence(HEADS_TIMEOUT).await,
                _ => Ok(Heads::new()),
            }
        });
        let updates = async {
            assert_eq!(subscription.next().await, HeadUpdate::DatabaseAway);
            let silent = begun.elapsed();
            assert!(
                (MAX_DB_OUTAGE..MAX_DB_OUTAGE + 3 * HEADS_TIMEOUT).contains(&silent),
                "{silent:?}"
            );
            assert_eq!(
                subscription.next().await,
                HeadUpdate::Gone,
                "the database answers again"
            );
        };
        tokio::select! {
            () = poll => unreachable!("the poll never ends"),
            () = updates => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_pages_that_never_arrive_fail_in_time() {
        let (registry, begun) = (
            WatchRegistry::new(&ServerSettings::default(), TenantShare::Whole),
            Instant::now(),
        );
        let reads =
            (0..50).map(|_| registry.read(TenantId::DEFAULT, || silence::<()>(PAGE_TIMEOUT)));
        for read in join_all(reads).await {
            assert!(read.is_err_and(|failure| failure.reason() == Reason::DatabaseUnavailable));
        }
        // A read may begin just before the outage has lasted that long, and take `PAGE_TIMEOUT`.
        // The other `PAGE_TIMEOUT` is slack.
        assert!(
            begun.elapsed() <= MAX_DB_OUTAGE + 2 * PAGE_TIMEOUT,
            "{:?}",
            begun.elapsed()
        );
    }
}
