//! The stops of turns that run in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use anneal_store::{ModelLease, StopMode};
use tokio::sync::watch;
use uuid::Uuid;

/// The turns that run in this process, by their leases, each with the sender that tells it to stop.
type RunningTurns = Arc<Mutex<HashMap<Uuid, watch::Sender<Option<StopMode>>>>>;

/// The turns that run in this process and can be told to stop. No caller can ask for that yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnStops(RunningTurns);

impl TurnStops {
    /// Watches for the stop of the turn that has this lease, until the watch is dropped.
    pub(crate) fn watch(&self, lease: &ModelLease) -> StopWatch {
        let (sender, receiver) = watch::channel(None);
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(lease.id(), sender);
        StopWatch {
            turns: Arc::clone(&self.0),
            lease: lease.id(),
            receiver,
        }
    }
}

/// Waits for the stop of one turn.
#[derive(Debug)]
pub(crate) struct StopWatch {
    turns: RunningTurns,
    lease: Uuid,
    receiver: watch::Receiver<Option<StopMode>>,
}

impl StopWatch {
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
        let mut running = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.lease);
    }
}
