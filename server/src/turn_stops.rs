//! The stops of the turns that run in this process. A stop that was asked for at this server is
//! signalled at once. Those that were asked for at other servers are read from the turns' leases,
//! in one statement for all turns of the process; while it runs none, nothing is read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anneal_store::{ModelLease, StopMode, Store};
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::poll_watchdog::{PollWatchdog, WatchedFuture};

/// Time between two readings. A turn at another server ends within a second of its stop.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Deadline of one reading.
const READ_DEADLINE: Duration = Duration::from_secs(5);

/// The turns that run in this process and can be told to stop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TurnStops {
    store: Store,
    running: Arc<Mutex<RunningTurns>>,
}

#[derive(Default)]
struct RunningTurns {
    /// By the ids of their leases.
    turns: HashMap<Uuid, RunningTurn>,
    /// Whether a task reads their stops.
    is_polled: bool,
}

struct RunningTurn {
    lease: ModelLease,
    stop: watch::Sender<Option<StopMode>>,
}

impl TurnStops {
    /// No turns yet. Their stops are read from this store.
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store: store.with_deadline(READ_DEADLINE),
            running: Arc::default(),
        }
    }

    /// Watches for the stop of the turn that has this lease, until the watch is dropped.
    pub(crate) fn watch(&self, lease: &ModelLease) -> StopWatch {
        let (stop, receiver) = watch::channel(lease.requested_stop());
        let turn = RunningTurn {
            lease: lease.clone(),
            stop,
        };
        let mut running = self.lock();
        running.turns.insert(lease.id(), turn);
        if !std::mem::replace(&mut running.is_polled, true) {
            tokio::spawn(WatchedFuture::new(
                PollWatchdog::for_task("turn stops"),
                self.clone().poll_while_turns_run(),
            ));
        }
        drop(running);
        StopWatch {
            stops: self.clone(),
            lease: lease.id(),
            receiver,
        }
    }

    /// Tells the turn that has this lease to stop, if it runs in this process. It may be told
    /// twice; the greater mode holds.
    pub(crate) fn signal(&self, lease: Uuid, mode: StopMode) {
        let running = self.lock();
        let Some(turn) = running.turns.get(&lease) else {
            return;
        };
        turn.stop.send_if_modified(|stop| {
            let is_stronger = *stop < Some(mode);
            if is_stronger {
                *stop = Some(mode);
            }
            is_stronger
        });
    }

    /// Returns when the turn that has this lease is no longer watched in this process: its call has
    /// ended. Never returns if it runs in another process.
    pub(crate) fn wait_for_end(&self, lease: Uuid) -> impl Future<Output = ()> + use<> {
        let turn = self
            .lock()
            .turns
            .get(&lease)
            .map(|turn| turn.stop.subscribe());
        async move {
            let Some(mut stop) = turn else {
                return std::future::pending().await;
            };
            // The sender is dropped with the watch.
            while stop.changed().await.is_ok() {}
        }
    }

    /// Reads the stops of the turns again and again, until none runs.
    async fn poll_while_turns_run(self) {
        let guard = PollGuard(Some(Arc::clone(&self.running)));
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(leases) = self.leases_or_end() else {
                guard.disarm();
                return;
            };
            match self.store.find_stops(&leases).await {
                Ok(stops) => {
                    for (lease, mode) in stops {
                        self.signal(lease, mode);
                    }
                }
                Err(error) => self.store.log_failure(&error, || {
                    warn!("could not read which turns are to stop: {error}");
                }),
            }
        }
    }

    /// The leases of the turns that run. None: there are none, and the poll ends.
    fn leases_or_end(&self) -> Option<Vec<ModelLease>> {
        let mut running = self.lock();
        if running.turns.is_empty() {
            running.is_polled = false;
            return None;
        }
        Some(
            running
                .turns
                .values()
                .map(|turn| turn.lease.clone())
                .collect(),
        )
    }

    fn lock(&self) -> MutexGuard<'_, RunningTurns> {
        lock(&self.running)
    }
}

fn lock(running: &Mutex<RunningTurns>) -> MutexGuard<'_, RunningTurns> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the next watch start another task, if the one that reads the stops ends by a panic.
struct PollGuard(Option<Arc<Mutex<RunningTurns>>>);

impl PollGuard {
    /// Drops the guard without an effect.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            lock(running).is_polled = false;
        }
    }
}

/// Waits for the stop of one turn.
pub(crate) struct StopWatch {
    stops: TurnStops,
    lease: Uuid,
    receiver: watch::Receiver<Option<StopMode>>,
}

impl StopWatch {
    /// The stop that was asked for until now; None: the turn goes on.
    pub(crate) fn requested(&self) -> Option<StopMode> {
        *self.receiver.borrow()
    }

    /// Returns when the turn is to stop.
    pub(crate) async fn wait_for_stop(&self) -> StopMode {
        let mut receiver = self.receiver.clone();
        let stop = receiver
            .wait_for(Option::is_some)
            .await
            .map(|stop| *stop)
            .ok()
            .flatten();
        match stop {
            Some(mode) => mode,
            // The sender lives as long as this watch.
            None => std::future::pending().await,
        }
    }
}

impl Drop for StopWatch {
    fn drop(&mut self) {
        self.stops.lock().turns.remove(&self.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_panics_lets_the_next_watch_start_another_one() {
        let running = Arc::new(Mutex::new(RunningTurns::default()));
        let guard_of_new_task = || {
            lock(&running).is_polled = true;
            PollGuard(Some(Arc::clone(&running)))
        };
        guard_of_new_task().disarm();
        assert!(lock(&running).is_polled, "the next task may run already");
        let guard = guard_of_new_task();
        let panicked = std::thread::spawn(move || {
            let _guard = guard;
            panic!("of the test");
        })
        .join();
        assert!(panicked.is_err());
        assert!(!lock(&running).is_polled);
    }
}
