//! The loop of counting: one claim at a time, whose conversations are counted together. While that runs, what is appended
//! marks conversations that are marked already, so that the busier it gets, the more each claim takes. Conversations that
//! others hold go with the next claim.

use std::{sync::Arc, time::Duration};

use anneal_core::job::JobKind;
use tokio::{
    sync::Semaphore,
    task::{Id, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    jobs,
    leases::Lease,
    run::{FIRST_TENANT, Worker},
};

const KIND: JobKind = JobKind::CountTokens;
/// Jobs by themselves that are under way or wait for room, for each that may run at once.
const WAITING_ALONE: usize = 8;
/// How long those wait for which there is no such place.
const PUT_OFF: Duration = Duration::from_secs(1);
/// Before conversations that others held are tried again, when nothing else is due.
const HELD: Duration = Duration::from_millis(4);

impl Worker {
    /// Counts until `stop` is cancelled; then finishes what is under way, or gives it back.
    pub(crate) async fn run_counting(&self, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(self.concurrency(KIND)));
        let mut running = JoinSet::new();
        let mut cursor = FIRST_TENANT;
        let mut held = Vec::new();
        while !stop.is_cancelled() {
            let next = Instant::now() + Duration::from_millis(u64::from(self.settings.count_gap_ms));
            held.retain(|lease: &Lease| !lease.lost.is_cancelled());
            let free = self.batch(KIND) - held.len() as u32;
            let claimed = if free == 0 { Vec::new() } else { self.claim(KIND, free, &mut cursor, &[]).await };
            match (claimed.is_empty(), held.is_empty()) {
                (true, true) => {
                    self.rest(KIND, &mut running, &stop).await;
                    continue;
                }
                (true, false) => tokio::time::sleep(HELD).await,
                (false, _) => {}
            }
            held.extend(claimed.into_iter().map(|job| self.leases.hold(job)));
            let found = held.len() as u32;
            let batch = running.spawn(count_together(self.clone(), held)).id();
            let left = ended(&mut running, batch, &stop).await;
            let alone;
            (held, alone) = left.into_iter().partition(jobs::is_to_wait);
            self.run_alone(alone, &mut running, &room).await;
            if found < self.batch(KIND) {
                let gap = tokio::time::sleep_until(next);
                let _ = stop.run_until_cancelled(gap).await;
            }
        }
        running.spawn(std::future::ready(held));
        self.finish(KIND, &room, running).await;
    }

    /// Starts jobs by themselves, each as soon as there is room. What would wait too long for it is put off: the next claims
    /// must not wait behind it.
    async fn run_alone(&self, alone: Vec<Lease>, running: &mut JoinSet<Vec<Lease>>, room: &Arc<Semaphore>) {
        while running.try_join_next().is_some() {}
        let most = self.concurrency(KIND) * WAITING_ALONE;
        let mut put_off = Vec::new();
        for lease in alone {
            if running.len() < most {
                running.spawn(self.clone().run_in_room(lease, Arc::clone(room)));
            } else {
                put_off.push(lease.job.clone());
            }
        }
        self.give_back(&put_off, PUT_OFF).await;
    }
}

async fn count_together(worker: Worker, held: Vec<Lease>) -> Vec<Lease> {
    jobs::count_together(&worker, held).await
}

/// Waits for a batch; returns its jobs that are to run by themselves. When the worker stops, it is left running.
async fn ended(running: &mut JoinSet<Vec<Lease>>, batch: Id, stop: &CancellationToken) -> Vec<Lease> {
    loop {
        tokio::select! {
            biased;
            Some(one) = running.join_next_with_id() => match one {
                Ok((id, alone)) if id == batch => return alone,
                Err(panicked) if panicked.id() == batch => return Vec::new(),
                Ok(_) | Err(_) => {}
            },
            () = stop.cancelled() => return Vec::new(),
        }
    }
}
