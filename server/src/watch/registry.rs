//! Which conversations are watched from this process, and the one poll that looks at them all.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::{Head, Store, StoreError, within};
use futures::FutureExt as _;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::budget::Budget;
use crate::{
    reason::Reason,
    room::{Places, Room, Sharing},
    settings::ServerSettings,
    status::Failure,
};

/// Pages that watchers read at once, so that ordinary calls find connections whatever is watched.
const READS: usize = 4;
/// Shortest time between two looks that appends of this process cause.
const QUIET: Duration = Duration::from_millis(10);
/// How long the database may be away before watches end.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How long the database may take to say where conversations stand. Whoever has vanished without a word would be waited for
/// a quarter of an hour: so long TCP tries.
pub(super) const LOOK: Duration = Duration::from_secs(5);
/// The same for a page: one message of 64 MiB comes in time over 30 Mbit/s.
const PAGE: Duration = Duration::from_secs(20);

type Key = (TenantId, ConversationId);

/// Where conversations stand; those that are gone are missing.
type Heads = HashMap<Key, Head>;

/// What the poll has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// It has not looked yet.
    Nothing,
    /// The conversation stands here.
    Head(Head),
    /// There is no such conversation.
    Gone,
    /// The database has been away for too long.
    Silent,
}

/// The watched conversations of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watching(Arc<Inner>);

struct Inner {
    poll: Duration,
    stall: Duration,
    room: Room,
    reads: Room,
    budget: Budget,
    stopping: CancellationToken,
    watched: Mutex<HashMap<Key, watch::Sender<News>>>,
    /// Watched conversations to which this process has appended since the last look.
    hinted: Mutex<HashSet<Key>>,
    wake: Notify,
}

impl Watching {
    pub(crate) fn new(settings: &ServerSettings, sharing: Sharing) -> Self {
        Self(Arc::new(Inner {
            poll: Duration::from_millis(u64::from(settings.watch_poll_ms)),
            stall: Duration::from_secs(u64::from(settings.watch_stall_seconds)),
            room: Room::new(settings.concurrent_watches as usize, sharing),
            reads: Room::new(READS, sharing),
            budget: Budget::new(sharing),
            stopping: CancellationToken::new(),
            watched: Mutex::default(),
            hinted: Mutex::default(),
            wake: Notify::new(),
        }))
    }

    /// Room for watches.
    pub(crate) fn room(&self) -> &Room {
        &self.0.room
    }

    /// Ends every watch, and those that still come: the server stops.
    pub(crate) fn stop(&self) {
        self.0.stopping.cancel();
    }

    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// How long a reader may take no event.
    pub(super) fn stall(&self) -> Duration {
        self.0.stall
    }

    /// What watchers may hold of messages.
    pub(super) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Reads a page when its turn comes; again where the database is away for a while.
    pub(super) async fn read<T, R>(&self, tenant: TenantId, ask: impl Fn() -> R) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        let until = Instant::now() + PATIENCE;
        loop {
            let turn = self.turn(tenant, until).await?;
            let failure = match within(PAGE, ask()).await {
                Ok(read) => return Ok(read),
                Err(error) => Failure::from(error),
            };
            drop(turn);
            let passes = matches!(failure.reason(), Reason::DatabaseUnavailable | Reason::TransactionConflict);
            if !passes || Instant::now() > until {
                return Err(failure);
            }
            tokio::time::sleep(self.0.poll).await;
        }
    }

    /// A turn to read. Where the database is away, those before take all the time that there is.
    async fn turn(&self, tenant: TenantId, until: Instant) -> Result<Places, Failure> {
        timeout_at(until, self.0.reads.wait(tenant, 1)).await.map_err(|_| StoreError::Silent)?
    }

    /// Says that this process has appended to a conversation: its watchers need not wait for the next look.
    pub(crate) fn hint(&self, caller: Caller, id: ConversationId) {
        let key = (caller.tenant(), id);
        if self.watched().contains_key(&key) {
            lock(&self.0.hinted).insert(key);
            self.0.wake.notify_one();
        }
    }

    /// From now on the poll looks at this conversation too.
    pub(super) fn subscribe(&self, caller: Caller, id: ConversationId) -> Subscription {
        let key = (caller.tenant(), id);
        let news = self.watched().entry(key).or_insert_with(|| watch::channel(News::Nothing).0).subscribe();
        metrics::gauge!("watchers").increment(1.0);
        self.0.wake.notify_one();
        Subscription { watching: self.clone(), key, news: Some(news) }
    }

    /// Looks at the watched conversations, until the future is dropped: at all of them each poll, and at once at those to
    /// which this process appends. Nobody watches: nothing is asked of the database.
    pub(crate) async fn run(&self, store: Store) {
        let store = Arc::new(store);
        self.poll(|keys: Arc<[Key]>| {
            let store = Arc::clone(&store);
            async move { store.heads(&keys).await }
        })
        .await;
    }

    async fn poll<A>(&self, ask: impl Fn(Arc<[Key]>) -> A)
    where
        A: Future<Output = Result<Heads, StoreError>>,
    {
        let mut ticks = interval(self.0.poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut answered = Instant::now();
        loop {
            if self.watched().is_empty() {
                self.0.wake.notified().await;
                answered = Instant::now();
            }
            tokio::select! {
                _ = ticks.tick() => {
                    let all = self.watched().keys().copied().collect();
                    lock(&self.0.hinted).clear();
                    self.look(&ask, all, &mut answered).await;
                }
                () = self.0.wake.notified() => {
                    let hinted = lock(&self.0.hinted).drain().collect();
                    self.look(&ask, hinted, &mut answered).await;
                    tokio::time::sleep(QUIET).await;
                }
            }
        }
    }

    /// One look: one statement. However it fails, there will be a next one.
    async fn look<A>(&self, ask: &impl Fn(Arc<[Key]>) -> A, keys: Arc<[Key]>, answered: &mut Instant)
    where
        A: Future<Output = Result<Heads, StoreError>>,
    {
        if keys.is_empty() {
            return;
        }
        metrics::counter!("watch_polls_total").increment(1);
        let asked = AssertUnwindSafe(within(LOOK, ask(Arc::clone(&keys)))).catch_unwind().await;
        match asked.map_or(Err(Failure::Panicked), |heads| heads.map_err(Failure::from)) {
            Ok(mut heads) => {
                *answered = Instant::now();
                for key in keys.iter().copied() {
                    self.publish(key, heads.remove(&key).map_or(News::Gone, News::Head));
                }
            }
            Err(error) => {
                warn!("could not look at {} watched conversations, trying again: {error}", keys.len());
                if answered.elapsed() > PATIENCE {
                    for key in keys.iter().copied() {
                        self.publish(key, News::Silent);
                    }
                }
            }
        }
    }

    fn publish(&self, key: Key, found: News) {
        let mut watched = self.watched();
        let Some(news) = watched.get(&key) else { return };
        let is_gone = found == News::Gone;
        news.send_if_modified(|news| {
            let is_new = *news != found;
            *news = found;
            is_new
        });
        if is_gone {
            watched.remove(&key);
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<News>>> {
        lock(&self.0.watched)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One watcher's interest in a conversation; when the last is dropped, the poll forgets it.
pub(super) struct Subscription {
    watching: Watching,
    key: Key,
    news: Option<watch::Receiver<News>>,
}

impl Subscription {
    /// The next news. Those that nobody came for are lost: the newest says it all.
    pub(super) async fn next(&mut self) -> News {
        let Some(news) = &mut self.news else { return News::Gone };
        match news.changed().await {
            Ok(()) => news.borrow_and_update().clone(),
            Err(_) => News::Gone,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        metrics::gauge!("watchers").decrement(1.0);
        self.news = None;
        let mut watched = self.watching.watched();
        if watched.get(&self.key).is_some_and(|news| news.receiver_count() == 0) {
            watched.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{join_all, pending};
    use uuid::Uuid;

    use super::*;

    fn watched(watching: &Watching) -> Subscription {
        watching.subscribe(Caller::of(TenantId(Uuid::nil())), ConversationId(Uuid::nil()))
    }

    #[tokio::test(start_paused = true)]
    async fn looks_go_on_after_a_panic_and_when_the_database_answers_no_more() {
        let watching = Watching::new(&ServerSettings::default(), Sharing::Whole);
        let mut subscription = watched(&watching);
        let (looks, begun) = (AtomicUsize::new(0), Instant::now());
        let poll = watching.poll(|_| async {
            match looks.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("a bug"),
                1..20 => pending().await,
                _ => Ok(Heads::new()),
            }
        });
        let told = async {
            assert_eq!(subscription.next().await, News::Silent);
            let silent = begun.elapsed();
            assert!((PATIENCE..PATIENCE + 3 * LOOK).contains(&silent), "{silent:?}");
            assert_eq!(subscription.next().await, News::Gone, "it answers again");
        };
        tokio::select! {
            () = poll => unreachable!("it looks for as long as it is asked to"),
            () = told => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_that_never_come_end_every_watch_that_waits_for_one() {
        let (watching, begun) = (Watching::new(&ServerSettings::default(), Sharing::Whole), Instant::now());
        let reads = (0..50).map(|_| watching.read(TenantId::DEFAULT, pending::<Result<(), StoreError>>));
        for read in join_all(reads).await {
            assert!(read.is_err_and(|failure| failure.reason() == Reason::DatabaseUnavailable));
        }
        assert!(begun.elapsed() <= PATIENCE + 2 * PAGE, "{:?}", begun.elapsed());
    }
}
