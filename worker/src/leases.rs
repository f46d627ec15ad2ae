//! The leases of this worker's jobs: heartbeats extend them, and a job whose lease is lost is
//! cancelled.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anneal_core::job::{HEARTBEAT_SECONDS, JobKind};
use anneal_store::{ClaimedJob, Store};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Time between heartbeats, and the time limit of one.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(HEARTBEAT_SECONDS as u64);

/// The leases of the jobs under way, by key.
#[derive(Default)]
pub(crate) struct Leases {
    /// The jobs, each with the token that its [`Lease`] has as `lost`.
    active: Mutex<HashMap<u64, (ClaimedJob, CancellationToken)>>,
    /// The key of the next lease.
    next: AtomicU64,
}

/// The lease of one job under way. Dropping it ends its heartbeats.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    key: u64,
    pub(crate) job: ClaimedJob,
    /// Cancelled when the lease is lost, or when the worker stops before the job has finished.
    pub(crate) lost: CancellationToken,
    /// How many batches of counting skipped the job because its conversation was locked; the
    /// maximum if the job must run by itself for another reason.
    pub(crate) times_skipped: u8,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.key);
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (ClaimedJob, CancellationToken)>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Extends the lease of a job with each heartbeat from now on.
    pub(crate) fn track(self: &Arc<Self>, job: ClaimedJob) -> Lease {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = CancellationToken::new();
        self.lock().insert(key, (job.clone(), lost.clone()));
        Lease {
            leases: Arc::clone(self),
            key,
            job,
            lost,
            times_skipped: 0,
        }
    }

    /// Cancels the jobs of a kind that are under way, and returns them.
    pub(crate) fn cancel(&self, kind: JobKind) -> Vec<ClaimedJob> {
        let active = self.lock();
        let of_kind = active.values().filter(|(job, _)| job.kind == kind);
        of_kind
            .inspect(|(_, lost)| lost.cancel())
            .map(|(job, _)| job.clone())
            .collect()
    }

    /// Extends all leases every five seconds, until the future is dropped. A failed heartbeat is
    /// followed by another one five seconds later. A lease lasts 15 s, so it survives one heartbeat
    /// that fails immediately. After two such failures, or after one that takes its time limit of
    /// five seconds, the next heartbeat comes just as the lease ends.
    pub(crate) async fn run_heartbeat(&self, store: &Store) {
        let store = store.clone().with_deadline(HEARTBEAT_INTERVAL);
        loop {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            let active: Vec<_> = self.lock().values().cloned().collect();
            if active.is_empty() {
                continue;
            }
            let jobs: Vec<ClaimedJob> = active.iter().map(|(job, _)| job.clone()).collect();
            match store.heartbeat(&jobs).await {
                Ok(ours) => {
                    for ((job, lost), _) in active.iter().zip(ours).filter(|(_, ours)| !ours) {
                        lost.cancel();
                        metrics::counter!("anneal_lease_lost_total", "kind" => job.kind.name())
                            .increment(1);
                    }
                }
                Err(error) => store.log_failure(&error, || {
                    warn!("could not extend {} leases: {error}", jobs.len());
                }),
            }
        }
    }
}
