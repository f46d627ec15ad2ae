//! Claims jobs and runs them. There is one claim loop per kind of job. Heartbeats, maintenance,
//! audits, erasures, retention and notifications run beside the loops, and end after them.
//!
//! - `count_loop`: the claim loop for counting, and what happens to jobs that a batch did not
//!   count.

mod count_loop;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::{
    caller::TenantId,
    job::{JobKind, LEASE_SECONDS},
    tokens::Encoding,
};
use anneal_store::{ClaimedJob, StoreError};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

use crate::{
    auditor, erasures, job_span, jobs, leases::Lease, maintenance, retention,
    retry_policy::JobError, tenant_cursor::BEFORE_FIRST_TENANT, worker::Worker,
};

/// Time limit of a claim. It is the length of a lease, because an answer that comes later would
/// bring leases that have ended.
const CLAIM_DEADLINE: Duration = Duration::from_secs(LEASE_SECONDS as u64);

impl Worker {
    /// Works until `stop` is cancelled; then finishes the jobs under way, or releases them.
    pub async fn run(&self, stop: CancellationToken) {
        info!(worker = &*self.name, "working as {}", self.name);
        // Any text makes the counter build its tables. Otherwise the first job would wait for that.
        tokio::task::spawn_blocking(|| Encoding::default().counter().count("warm"));
        let stop_background = CancellationToken::new();
        let background_work = stop_background.clone().run_until_cancelled_owned({
            let worker = self.clone();
            async move {
                tokio::join!(
                    worker.leases.run_heartbeat(&worker.store),
                    maintenance::run_rescue_loop(&worker.store),
                    maintenance::run_cleanup_loop(&worker.store),
                    maintenance::run_queue_metrics_loop(&worker.store),
                    maintenance::run_database_metrics_loop(&worker.store),
                    maintenance::run_breaker_metrics_loop(&worker.store, &worker.summarizers),
                    auditor::run_audit_loop(&worker.store, &worker.settings),
                    erasures::run_erasure_loop(&worker.store, &worker.settings),
                    retention::run_retention_loop(&worker.store, &worker.retention),
                    worker.notifier.run(worker.store.clone()),
                    worker.listen_for_jobs(),
                )
            }
        });
        let background_work = tokio::spawn(background_work);
        let mut loops = JoinSet::new();
        for kind in JobKind::ALL {
            let (worker, stop) = (self.clone(), stop.clone());
            loops.spawn(async move {
                match kind {
                    JobKind::CountTokens => worker.run_count_loop(stop).await,
                    JobKind::Checkpoint | JobKind::SummarizeMessages => {
                        worker.run_job_loop(kind, stop).await;
                    }
                }
            });
        }
        while loops.join_next().await.is_some() {}
        stop_background.cancel();
        let _ = background_work.await;
        self.store.wait_for_settlements().await;
        info!("stopped working");
    }

    /// Runs due jobs until none is left, and returns how many ran. Tests use this to let the worker
    /// work at a chosen moment.
    pub async fn run_until_idle(&self) -> usize {
        let mut total = 0;
        loop {
            let mut ran = 0;
            for kind in JobKind::ALL {
                let claimed = self
                    .claim(kind, self.batch(kind), &mut { BEFORE_FIRST_TENANT }, &[])
                    .await;
                ran += claimed.len();
                let leases = claimed
                    .into_iter()
                    .map(|job| self.leases.track(job))
                    .collect();
                let single = match kind {
                    JobKind::CountTokens => jobs::count_batch(self, leases).await,
                    JobKind::Checkpoint | JobKind::SummarizeMessages => leases,
                };
                for lease in single {
                    self.run_job(&lease).await;
                }
            }
            if ran == 0 {
                return total;
            }
            total += ran;
        }
    }

    /// Frees jobs whose lease has ended: one round of what [`Worker::run`] repeats.
    pub async fn rescue(&self) {
        maintenance::rescue_orphaned_jobs(&self.store).await;
    }

    /// Works on erasures until none is left or none can go on. Tests use this to let the worker
    /// work at a chosen moment.
    pub async fn run_erasures(&self) -> Result<(), StoreError> {
        erasures::run_until_idle(&self.store).await
    }

    /// Makes one round of retention of each kind, with all their steps. Tests use this to let the
    /// worker work at a chosen moment.
    pub async fn run_retention(&self) -> Result<(), StoreError> {
        let settings = Arc::clone(&self.retention.borrow());
        retention::run_rounds_at_once(&self.store, &settings).await
    }

    /// The claim loop of one kind: claims as many jobs as may start, and waits when none is due.
    /// Claims no jobs of tenants for which the model is paused.
    async fn run_job_loop(&self, kind: JobKind, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.concurrency(kind)));
        let mut running = JoinSet::new();
        let mut cursor = BEFORE_FIRST_TENANT;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            let batch = if self.pauses.is_paused_for_all() {
                0
            } else {
                self.batch(kind)
            };
            let free = batch.saturating_sub(running.len() as u32);
            let claimed = if free == 0 {
                Vec::new()
            } else {
                self.claim(kind, free, &mut cursor, &self.pauses.paused_tenants())
                    .await
            };
            let found = !claimed.is_empty();
            for job in claimed {
                running.spawn(
                    self.clone()
                        .run_with_permit(self.leases.track(job), Arc::clone(&permits)),
                );
            }
            if !found {
                self.wait_for_work(kind, &mut running, &stop).await;
            }
        }
        self.drain(kind, &permits, running).await;
    }

    /// Runs a job as soon as it gets a permit. If the semaphore is closed before, because the
    /// worker stops, returns the job.
    async fn run_with_permit(self, lease: Lease, permits: Arc<Semaphore>) -> Vec<Lease> {
        match permits.acquire_owned().await {
            Ok(_permit) => {
                self.run_job(&lease).await;
                Vec::new()
            }
            Err(_) => vec![lease],
        }
    }

    /// Waits for a notification, the end of a job, the worker's stop, or the poll interval.
    async fn wait_for_work(
        &self,
        kind: JobKind,
        running: &mut JoinSet<Vec<Lease>>,
        stop: &CancellationToken,
    ) {
        // Varied by a quarter, so that workers do not poll all at once.
        let pause = Duration::from_millis(u64::from(self.settings.poll_ms))
            .mul_f64(0.75 + 0.5 * fastrand::f64());
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work_signal(kind).notified() => {}
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Lets jobs that have started finish, and releases the others. After the setting
    /// `stop_seconds`, cancels and releases the started jobs as well.
    async fn drain(&self, kind: JobKind, permits: &Semaphore, mut running: JoinSet<Vec<Lease>>) {
        permits.close();
        let deadline = Duration::from_secs(u64::from(self.settings.stop_seconds));
        let all_done = async {
            while let Some(ended) = running.join_next().await {
                let not_run: Vec<ClaimedJob> = ended
                    .iter()
                    .flatten()
                    .map(|lease| lease.job.clone())
                    .collect();
                self.release(&not_run, Duration::ZERO).await;
            }
        };
        if timeout(deadline, all_done).await.is_ok() {
            return;
        }
        let unfinished = self.leases.cancel(kind);
        running.shutdown().await;
        warn!(
            job.kind = kind.name(),
            "released {} {} jobs that did not finish in time",
            unfinished.len(),
            kind.name()
        );
        self.release(&unfinished, Duration::ZERO).await;
    }

    /// Claims due jobs of the tenants after `cursor`; if there are none, searches once more from
    /// the first tenant. Leaves out the tenants in `skipped`. Moves the cursor past the last tenant
    /// that was searched, or back to the start after the last of all tenants.
    async fn claim(
        &self,
        kind: JobKind,
        limit: u32,
        cursor: &mut TenantId,
        skipped: &[TenantId],
    ) -> Vec<ClaimedJob> {
        let store = self.store.clone().with_deadline(CLAIM_DEADLINE);
        let per_tenant = (jobs::spec(kind).per_tenant)(limit);
        let mut started_at_first = *cursor == BEFORE_FIRST_TENANT;
        loop {
            let claiming = store.claim_jobs(
                kind,
                limit as i32,
                per_tenant as i32,
                *cursor,
                &self.name,
                skipped,
            );
            // A claim without an answer counts as empty: leases that it may have taken end by
            // themselves.
            let claim = match claiming.await {
                Ok(claim) => claim,
                Err(error) => {
                    store.log_failure(&error, || {
                        warn!(
                            job.kind = kind.name(),
                            "could not claim {} jobs: {error}",
                            kind.name()
                        );
                    });
                    return Vec::new();
                }
            };
            *cursor = claim.more_after.unwrap_or(BEFORE_FIRST_TENANT);
            if !claim.jobs.is_empty() || (claim.more_after.is_none() && started_at_first) {
                metrics::counter!("anneal_jobs_claimed_total", "kind" => kind.name())
                    .increment(claim.jobs.len() as u64);
                return claim.jobs;
            }
            started_at_first |= claim.more_after.is_none();
        }
    }

    /// Runs a job under its lease and records the result. A panic fails this job only.
    async fn run_job(&self, Lease { job, lost, .. }: &Lease) {
        let kind = job.kind.name();
        let span = info_span!("job", job.kind = kind, conversation = %job.conversation, tenant = %job.tenant);
        job_span::continue_trace(&span, job);
        let started = Instant::now();
        let work = tokio::spawn({
            let (worker, job, lost) = (self.clone(), job.clone(), lost.clone());
            async move { jobs::run(&worker, &job, &lost).await }.instrument(span.clone())
        });
        let abort_handle = work.abort_handle();
        let outcome = tokio::select! {
            outcome = work => outcome.unwrap_or(Err(JobError::Panicked)),
            () = lost.cancelled() => { abort_handle.abort(); Err(JobError::Cancelled) }
        };
        if outcome.is_err() {
            anneal_trace::set_failure(&span, "failed");
        }
        self.record(job, outcome, started.elapsed())
            .instrument(span)
            .await;
    }

    /// Wakes the claim loops when a server or another worker sends a notification. While there is
    /// no connection for notifications, the loops only poll.
    async fn listen_for_jobs(&self) {
        loop {
            match self.store.listen().await {
                Ok(mut notifications) => loop {
                    match notifications.next().await {
                        Ok(Some(kind)) => self.work_signal(kind).notify_one(),
                        // A kind that only newer builds know.
                        Ok(None) => {}
                        Err(error) => {
                            debug!("lost the connection for job notifications: {error}");
                            break;
                        }
                    }
                },
                Err(error) => debug!("could not connect for job notifications: {error}"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Most jobs of a kind that one claim takes.
    fn batch(&self, kind: JobKind) -> u32 {
        (jobs::spec(kind).batch)(&self.settings)
    }

    /// Most jobs of a kind that run at once. For counting: outside of a batch.
    fn concurrency(&self, kind: JobKind) -> usize {
        (jobs::spec(kind).concurrency)(&self.settings) as usize
    }
}
