//! Leases of model calls about which the database was asked something, and no answer came: whether the call was admitted,
//! whether it has ended. Each is ended in the background, so that its conversation waits for no call that nobody makes.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::{
    Store,
    calls::{ModelLease, Settled},
    patience::{Pauses, within},
};

/// How long one try may take: its connection may be dead without anybody saying so.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question about a lease. Where it is dropped without an answer, whatever the reason, the lease is ended as soon as the
/// database takes it.
pub(crate) struct Unheard<'a> {
    store: &'a Store,
    ending: Option<(ModelLease, Settled)>,
}

impl<'a> Unheard<'a> {
    /// Nothing has been asked yet.
    pub(crate) const fn new(store: &'a Store) -> Self {
        Self { store, ending: None }
    }

    /// What is asked next may leave this lease behind, which is then to end so.
    pub(crate) fn leaves(&mut self, lease: &ModelLease, settled: &Settled) {
        self.ending = Some((lease.clone(), settled.clone()));
    }

    /// An answer has come.
    pub(crate) fn heard(mut self) {
        self.ending = None;
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        // Without a runtime the process is about to end, and the lease with it.
        if let (Some((lease, settled)), Ok(runtime)) = (self.ending.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(end(self.store.clone(), lease, settled));
        }
    }
}

/// Ends a lease that may be there, once it can be; after as long as a lease lasts it has ended by itself.
async fn end(store: Store, lease: ModelLease, settled: Settled) {
    let until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
    let mut pauses = Pauses::default();
    loop {
        sleep(pauses.take()).await;
        match within(PATIENCE, store.settle_if_held(&lease, &settled)).await {
            Ok(()) => return,
            Err(error) if Instant::now() >= until => {
                return warn!("could not end the lease of a model call, it ends by itself: {error}");
            }
            Err(_) => {}
        }
    }
}
