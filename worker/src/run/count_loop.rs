//! The claim loop for counting: one claim at a time, whose conversations are counted in one batch.
//!
//! An append to a conversation whose counting job already waits adds no second job. So the longer a
//! batch takes, the more messages each job of the next batch counts. Conversations that another
//! transaction has locked go into the next batch.

use std::{sync::Arc, time::Duration};

use anneal_core::job::JobKind;
use tokio::{
    sync::Semaphore,
    task::{Id, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    jobs::{can_join_next_batch, count_batch},
    leases::Lease,
    tenant_cursor::BEFORE_FIRST_TENANT,
    worker::Worker,
};

const KIND: JobKind = JobKind::CountTokens;
/// Single jobs run outside of a batch, each with a permit. At most this many per permit run or wait
/// for one; further single jobs are released.
const QUEUED_PER_PERMIT: usize = 8;
/// A single job that is released is due again after this time.
const RELEASE_DELAY: Duration = Duration::from_secs(1);
/// Pause before locked conversations are tried again when nothing else is due.
const LOCKED_PAUSE: Duration = Duration::from_millis(4);

impl Worker {
    /// Claims and counts until `stop` is cancelled; then finishes the jobs under way, or releases
    /// them.
    pub(super) async fn run_count_loop(&self, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.concurrency(KIND)));
        let mut running = JoinSet::new();
        let mut cursor = BEFORE_FIRST_TENANT;
        // The jobs of the next batch. Before a claim: those whose conversations were locked.
        let mut leases = Vec::new();
        while !stop.is_cancelled() {
            let next_claim =
                Instant::now() + Duration::from_millis(u64::from(self.settings.count_gap_ms));
            leases.retain(|lease: &Lease| !lease.lost.is_cancelled());
            let free = self.batch(KIND) - leases.len() as u32;
            let claimed = if free == 0 {
                Vec::new()
            } else {
                self.claim(KIND, free, &mut cursor, &[]).await
            };
            if claimed.is_empty() && leases.is_empty() {
                self.wait_for_work(KIND, &mut running, &stop).await;
                continue;
            }
            if claimed.is_empty() {
                tokio::time::sleep(LOCKED_PAUSE).await;
            }
            leases.extend(claimed.into_iter().map(|job| self.leases.track(job)));
            let batch_size = leases.len() as u32;
            let worker = self.clone();
            let batch = running.spawn(async move { count_batch(&worker, leases).await });
            let batch = batch.id();
            let not_counted = wait_for_batch(&mut running, batch, &stop).await;
            let single;
            (leases, single) = not_counted.into_iter().partition(can_join_next_batch);
            self.start_single_jobs(single, &mut running, &permits).await;
            if batch_size < self.batch(KIND) {
                let gap = tokio::time::sleep_until(next_claim);
                let _ = stop.run_until_cancelled(gap).await;
            }
        }
        // Hands the jobs that wait for the next batch to `drain`, which releases them.
        running.spawn(std::future::ready(leases));
        self.drain(KIND, &permits, running).await;
    }

    /// Starts jobs that run by themselves, each as soon as it gets a permit. Jobs that would wait
    /// too long for one are released, so that they do not hold up the next claims.
    async fn start_single_jobs(
        &self,
        single: Vec<Lease>,
        running: &mut JoinSet<Vec<Lease>>,
        permits: &Arc<Semaphore>,
    ) {
        while running.try_join_next().is_some() {}
        let most = self.concurrency(KIND) * QUEUED_PER_PERMIT;
        let mut released = Vec::new();
        for lease in single {
            if running.len() < most {
                running.spawn(self.clone().run_with_permit(lease, Arc::clone(permits)));
            } else {
                released.push(lease.job.clone());
            }
        }
        self.release(&released, RELEASE_DELAY).await;
    }
}

/// Waits for a batch and returns its jobs that were not counted; none if the batch panicked. If the
/// worker stops meanwhile, returns none either, and the batch goes on.
async fn wait_for_batch(
    running: &mut JoinSet<Vec<Lease>>,
    batch: Id,
    stop: &CancellationToken,
) -> Vec<Lease> {
    loop {
        tokio::select! {
            biased;
            Some(one) = running.join_next_with_id() => match one {
                Ok((id, not_counted)) if id == batch => return not_counted,
                Err(panicked) if panicked.id() == batch => return Vec::new(),
                Ok(_) | Err(_) => {}
            },
            () = stop.cancelled() => return Vec::new(),
        }
    }
}
