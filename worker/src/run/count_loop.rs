//! The claim loop for counting: one claim at a time, whose conversations are counted in one batch.
//!
//! While a batch runs, appends mark conversations that are marked already. So under load each claim
//! takes more messages. Conversations that another transaction has locked go into the next batch.

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
    tenant_cursor::FIRST_TENANT,
    worker::Worker,
};

const KIND: JobKind = JobKind::CountTokens;
/// Single jobs that run or wait for a permit, per job that may run at once.
const QUEUED_PER_PERMIT: usize = 8;
/// Delay of single jobs beyond that number.
const RELEASE_DELAY: Duration = Duration::from_secs(1);
/// Pause before locked conversations are tried again when nothing else is due.
const LOCKED_PAUSE: Duration = Duration::from_millis(4);

impl Worker {
    /// Counts until `stop` is cancelled; then finishes the jobs under way, or releases them.
    pub(super) async fn run_count_loop(&self, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.concurrency(KIND)));
        let mut running = JoinSet::new();
        let mut cursor = FIRST_TENANT;
        let mut leases = Vec::new();
        while !stop.is_cancelled() {
            let next =
                Instant::now() + Duration::from_millis(u64::from(self.settings.count_gap_ms));
            leases.retain(|lease: &Lease| !lease.lost.is_cancelled());
            let free = self.batch(KIND) - leases.len() as u32;
            let claimed = if free == 0 {
                Vec::new()
            } else {
                self.claim(KIND, free, &mut cursor, &[]).await
            };
            match (claimed.is_empty(), leases.is_empty()) {
                (true, true) => {
                    self.wait_for_work(KIND, &mut running, &stop).await;
                    continue;
                }
                (true, false) => tokio::time::sleep(LOCKED_PAUSE).await,
                (false, _) => {}
            }
            leases.extend(claimed.into_iter().map(|job| self.leases.track(job)));
            let found = leases.len() as u32;
            let worker = self.clone();
            let batch = running.spawn(async move { count_batch(&worker, leases).await });
            let batch = batch.id();
            let left = wait_for_batch(&mut running, batch, &stop).await;
            let single;
            (leases, single) = left.into_iter().partition(can_join_next_batch);
            self.start_single_jobs(single, &mut running, &permits).await;
            if found < self.batch(KIND) {
                let gap = tokio::time::sleep_until(next);
                let _ = stop.run_until_cancelled(gap).await;
            }
        }
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

/// Waits for a batch and returns its jobs that were not counted. When the worker stops, the batch
/// is left running and nothing is returned.
async fn wait_for_batch(
    running: &mut JoinSet<Vec<Lease>>,
    batch: Id,
    stop: &CancellationToken,
) -> Vec<Lease> {
    loop {
        tokio::select! {
            biased;
            Some(one) = running.join_next_with_id() => match one {
                Ok((id, left)) if id == batch => return left,
                Err(panicked) if panicked.id() == batch => return Vec::new(),
                Ok(_) | Err(_) => {}
            },
            () = stop.cancelled() => return Vec::new(),
        }
    }
}
