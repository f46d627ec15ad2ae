//! The leases that this worker holds: kept by heartbeats, and cancelled where one is lost.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anneal_core::job::{HEARTBEAT_SECONDS, JobKind};
use anneal_store::{ClaimedJob, Store, within};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Between heartbeats, and how long one may take.
const BEAT: Duration = Duration::from_secs(HEARTBEAT_SECONDS as u64);

/// The jobs under way.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<u64, (ClaimedJob, CancellationToken)>>,
    next: AtomicU64,
}

/// One job under way; forgotten when dropped.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    key: u64,
    /// The job.
    pub(crate) job: ClaimedJob,
    /// Cancelled when the lease is lost.
    pub(crate) lost: CancellationToken,
    /// How often others held its conversation when it was to be counted with others.
    pub(crate) passed_over: u8,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.held().remove(&self.key);
    }
}

impl Leases {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (ClaimedJob, CancellationToken)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job under heartbeat.
    pub(crate) fn hold(self: &Arc<Self>, job: ClaimedJob) -> Lease {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = CancellationToken::new();
        self.held().insert(key, (job.clone(), lost.clone()));
        Lease { leases: Arc::clone(self), key, job, lost, passed_over: 0 }
    }

    /// Cancels the jobs of a kind that are under way, and returns them.
    pub(crate) fn cancel(&self, kind: JobKind) -> Vec<ClaimedJob> {
        let held = self.held();
        let of_kind = held.values().filter(|(job, _)| job.kind == kind);
        of_kind.inspect(|(_, lost)| lost.cancel()).map(|(job, _)| job.clone()).collect()
    }

    /// Extends all leases every five seconds, until the future is dropped. A heartbeat that fails is tried at the next
    /// beat: two may fail before a lease ends; one that nobody answers counts as both.
    pub(crate) async fn keep(&self, store: &Store) {
        loop {
            tokio::time::sleep(BEAT).await;
            let held: Vec<_> = self.held().values().cloned().collect();
            if held.is_empty() {
                continue;
            }
            let jobs: Vec<ClaimedJob> = held.iter().map(|(job, _)| job.clone()).collect();
            match within(BEAT, store.heartbeat(&jobs)).await {
                Ok(ours) => {
                    for ((job, lost), _) in held.iter().zip(ours).filter(|(_, ours)| !ours) {
                        lost.cancel();
                        metrics::counter!("lease_lost_total", "kind" => job.kind.name()).increment(1);
                    }
                }
                Err(error) => warn!("could not extend {} leases: {error}", jobs.len()),
            }
        }
    }
}
