//! The worker: claim, run, record. A loop per kind of job, heartbeats and chores beside them.

use std::{
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::{
    caller::TenantId,
    job::{JobKind, LEASE_SECONDS, backoff},
    tokens::Encoding,
};
use anneal_llm::{ModelAccess, Summarizer, provider::Model};
use anneal_store::{ClaimedJob, Doorbell, Failed, Store, within};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};
use uuid::Uuid;

use crate::{
    auditor, chores, jobs,
    leases::{Lease, Leases},
    model_pauses::ModelPauses,
    outcome::{JobError, Outcome, What},
    patience::answered,
    settings::{SummarizerSettings, WorkerSettings},
    summarize::{Summaries, Writer},
};

/// How long a claim waits for its answer: a lease is over by then.
const CLAIM_PATIENCE: Duration = Duration::from_secs(LEASE_SECONDS as u64);
/// Before every tenant: where claims begin.
pub(crate) const FIRST_TENANT: TenantId = TenantId(Uuid::nil());

/// Runs jobs. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    pub(crate) store: Store,
    pub(crate) summaries: Summaries,
    pub(crate) threads: Arc<Semaphore>,
    pub(crate) lengths: SummarizerSettings,
    pub(crate) settings: WorkerSettings,
    pub(crate) leases: Arc<Leases>,
    pauses: Arc<ModelPauses>,
    bell: Doorbell,
    wake: Arc<[Notify; JobKind::ALL.len()]>,
    name: Arc<str>,
}

impl Worker {
    /// A worker on a store, with a summariser.
    pub fn new(
        store: Store,
        summarizer: Arc<dyn Summarizer>,
        settings: WorkerSettings,
        lengths: SummarizerSettings,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = Arc::new(Semaphore::new(if settings.threads == 0 { cores } else { settings.threads as usize }));
        Self {
            summaries: Summaries::new(store.clone(), summarizer, Arc::clone(&threads)),
            store,
            threads,
            lengths,
            settings,
            leases: Arc::default(),
            pauses: Arc::default(),
            bell: Doorbell::default(),
            wake: Arc::new([const { Notify::const_new() }; JobKind::ALL.len()]),
            name: anneal_process::name().into(),
        }
    }

    /// The same worker with a language model that writes its summaries.
    #[must_use]
    pub fn with_model(mut self, access: Arc<ModelAccess>, model: Arc<Model>) -> Self {
        self.summaries.writer = Some(Writer::new(access, model, self.lengths.fallback));
        self
    }

    /// Works until `stop` is cancelled; then finishes what is under way, or gives it back.
    pub async fn run(&self, stop: CancellationToken) {
        info!(worker = &*self.name, "working as {}", self.name);
        tokio::task::spawn_blocking(|| Encoding::default().counter().count("warm"));
        let background = CancellationToken::new();
        let beside = background.clone().run_until_cancelled_owned({
            let worker = self.clone();
            async move {
                tokio::join!(
                    worker.leases.keep(&worker.store),
                    chores::rescue(&worker.store),
                    chores::forget(&worker.store),
                    chores::show_queues(&worker.store),
                    auditor::audit(&worker.store, &worker.settings),
                    worker.bell.run(worker.store.clone()),
                    worker.listen(),
                )
            }
        });
        let beside = tokio::spawn(beside);
        let mut loops = JoinSet::new();
        for kind in JobKind::ALL {
            let (worker, stop) = (self.clone(), stop.clone());
            loops.spawn(async move {
                match kind {
                    JobKind::CountTokens => worker.run_counting(stop).await,
                    JobKind::Checkpoint | JobKind::SummarizeMessages => worker.run_kind(kind, stop).await,
                }
            });
        }
        while loops.join_next().await.is_some() {}
        background.cancel();
        let _ = beside.await;
        self.store.calls_ended().await;
        info!("stopped working");
    }

    /// Runs due jobs until none is left: the worker, stepped by hand. Returns how many ran.
    pub async fn run_until_idle(&self) -> usize {
        let mut total = 0;
        loop {
            let mut ran = 0;
            for kind in JobKind::ALL {
                let claimed = self.claim(kind, self.batch(kind), &mut { FIRST_TENANT }, &[]).await;
                ran += claimed.len();
                let held = claimed.into_iter().map(|job| self.leases.hold(job)).collect();
                let alone = match kind {
                    JobKind::CountTokens => jobs::count_together(self, held).await,
                    JobKind::Checkpoint | JobKind::SummarizeMessages => held,
                };
                for lease in alone {
                    self.run_held(&lease).await;
                }
            }
            if ran == 0 {
                return total;
            }
            total += ran;
        }
    }

    /// Frees jobs whose lease ran out, once.
    pub async fn rescue(&self) {
        chores::rescue_once(&self.store).await;
    }

    /// The loop of one kind: claims as many as there is room for, waits when there is nothing.
    async fn run_kind(&self, kind: JobKind, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(self.concurrency(kind)));
        let mut running = JoinSet::new();
        let mut cursor = FIRST_TENANT;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            let room_for = if self.pauses.hold_for_all() { 0 } else { self.batch(kind) };
            let free = room_for.saturating_sub(running.len() as u32);
            let claimed =
                if free == 0 { Vec::new() } else { self.claim(kind, free, &mut cursor, &self.pauses.tenants()).await };
            let found = !claimed.is_empty();
            for job in claimed {
                running.spawn(self.clone().run_in_room(self.leases.hold(job), Arc::clone(&room)));
            }
            if !found || free == 0 {
                self.rest(kind, &mut running, &stop).await;
            }
        }
        self.finish(kind, &room, running).await;
    }

    /// Runs a job as soon as there is room; returns it where the room was closed before.
    pub(crate) async fn run_in_room(self, lease: Lease, room: Arc<Semaphore>) -> Vec<Lease> {
        match room.acquire_owned().await {
            Ok(_room) => {
                self.run_held(&lease).await;
                Vec::new()
            }
            Err(_) => vec![lease],
        }
    }

    /// Waits until somebody rings, a job ends, the worker stops, or it is time to look again.
    pub(crate) async fn rest(&self, kind: JobKind, running: &mut JoinSet<Vec<Lease>>, stop: &CancellationToken) {
        let pause = Duration::from_millis(u64::from(self.settings.poll_ms)).mul_f64(0.75 + 0.5 * jitter());
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.wake[kind_index(kind)].notified() => {}
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Lets started jobs finish and gives the others back; after `stop_seconds` gives everything back.
    pub(crate) async fn finish(&self, kind: JobKind, room: &Semaphore, mut running: JoinSet<Vec<Lease>>) {
        room.close();
        let patience = Duration::from_secs(u64::from(self.settings.stop_seconds));
        let all_done = async {
            while let Some(ended) = running.join_next().await {
                let not_run: Vec<ClaimedJob> = ended.iter().flatten().map(|lease| lease.job.clone()).collect();
                self.give_back(&not_run, Duration::ZERO).await;
            }
        };
        if timeout(patience, all_done).await.is_ok() {
            return;
        }
        let left = self.leases.cancel(kind);
        running.shutdown().await;
        warn!(job.kind = kind.name(), "gave back {} {} jobs that did not finish in time", left.len(), kind.name());
        self.give_back(&left, Duration::ZERO).await;
    }

    /// Gives jobs back that were not run; they are due after `delay`.
    pub(crate) async fn give_back(&self, jobs: &[ClaimedJob], delay: Duration) {
        if jobs.is_empty() {
            return;
        }
        if let Err(error) = answered(self.store.release_jobs(jobs, delay.as_millis() as i64)).await {
            warn!("could not give jobs back, their leases will end: {error}");
        }
    }

    /// Claims what is due after `cursor`, or, when nothing is, from the first tenant on, leaving out tenants in `skipped`; moves the cursor behind the last tenant
    /// that was looked at.
    pub(crate) async fn claim(
        &self,
        kind: JobKind,
        limit: u32,
        cursor: &mut TenantId,
        skipped: &[TenantId],
    ) -> Vec<ClaimedJob> {
        let per_tenant = match kind {
            // Over in milliseconds: who comes meanwhile is in the next claim.
            JobKind::CountTokens => limit,
            // Over in minutes.
            JobKind::Checkpoint | JobKind::SummarizeMessages => (limit / 2).max(1),
        };
        let mut is_round = *cursor == FIRST_TENANT;
        loop {
            let claiming = self.store.claim_jobs(kind, limit as i32, per_tenant as i32, *cursor, &self.name, skipped);
            // What nobody answers claims nothing: a lease that nobody has heard of ends by itself.
            let claim = match within(CLAIM_PATIENCE, claiming).await {
                Ok(claim) => claim,
                Err(error) => {
                    warn!(job.kind = kind.name(), "could not claim {} jobs: {error}", kind.name());
                    return Vec::new();
                }
            };
            *cursor = claim.more_after.unwrap_or(FIRST_TENANT);
            if !claim.jobs.is_empty() || (claim.more_after.is_none() && is_round) {
                metrics::counter!("jobs_claimed_total", "kind" => kind.name()).increment(claim.jobs.len() as u64);
                return claim.jobs;
            }
            is_round |= claim.more_after.is_none();
        }
    }

    /// Runs a job whose lease is kept, and records what came of it. A panic fails this job only.
    async fn run_held(&self, Lease { job, lost, .. }: &Lease) {
        let kind = job.kind.name();
        let span = info_span!("job", job.kind = kind, conversation = %job.conversation, tenant = %job.tenant);
        let started = Instant::now();
        let work = tokio::spawn({
            let (worker, job, lost) = (self.clone(), job.clone(), lost.clone());
            async move { jobs::run(&worker, &job, &lost).await }.instrument(span.clone())
        });
        let aborted = work.abort_handle();
        let outcome = tokio::select! {
            outcome = work => outcome.unwrap_or(Err(JobError::Panicked)),
            () = lost.cancelled() => { aborted.abort(); Err(JobError::Cancelled) }
        };
        self.record(job, outcome, started.elapsed()).instrument(span).await;
    }

    /// Records what came of a job.
    pub(crate) async fn record(&self, job: &ClaimedJob, outcome: Outcome, duration: Duration) {
        let kind = job.kind.name();
        metrics::histogram!("job_duration_seconds", "kind" => kind).record(duration.as_secs_f64());
        match outcome {
            Ok(committed) => {
                metrics::counter!("jobs_done_total", "kind" => kind).increment(1);
                let duration_ms = duration.as_secs_f64() * 1_000.0;
                debug!(duration_ms, "ran {kind} job of {} in {duration_ms:.1} ms", job.conversation);
                for caused in &committed.caused {
                    self.wake[kind_index(*caused)].notify_one();
                }
                self.bell.ring(&committed.caused);
            }
            Err(error) if error.is_moot() => {
                debug!("{kind} job of {} is not ours any more: {error}", job.conversation);
            }
            Err(JobError::Cancelled) => debug!("{kind} job of {} was cancelled", job.conversation),
            Err(error) => match error.what_now() {
                What::Defer { delay } => {
                    self.pauses.note(job.tenant, &error);
                    self.defer(job, &error, delay).await;
                }
                What::Retry { not_before, starts } => {
                    let delay = backoff(job.attempts, jitter()).max(not_before);
                    self.fail(job, &error, delay, starts).await;
                }
            },
        }
    }

    /// Puts a job off whose model is not called now.
    async fn defer(&self, job: &ClaimedJob, error: &JobError, delay: Duration) {
        let kind = job.kind.name();
        let delay = delay.mul_f64(1.0 + 0.1 * jitter());
        info!(retry_ms = delay.as_millis() as u64, "{kind} job of {} waits: {error}", job.conversation);
        metrics::counter!("jobs_deferred_total", "kind" => kind).increment(1);
        if let Err(error) = answered(self.store.defer_job(job, &error.to_string(), delay.as_millis() as i64)).await {
            warn!("could not put the job off, the lease will end: {error}");
        }
    }

    /// Records a failure. After `starts` starts the job is given up.
    async fn fail(&self, job: &ClaimedJob, error: &JobError, delay: Duration, starts: i16) {
        let kind = job.kind.name();
        warn!(
            attempts = job.attempts,
            retry_ms = delay.as_millis() as u64,
            "{kind} job of {} failed: {error}",
            job.conversation
        );
        metrics::counter!("jobs_failed_total", "kind" => kind).increment(1);
        match answered(self.store.fail_job(job, &error.to_string(), delay.as_millis() as i64, starts)).await {
            Ok(Failed::Retry) => {}
            Ok(Failed::Dead) => {
                metrics::counter!("jobs_dead_total").increment(1);
                warn!("gave up the {kind} job of {} after {} starts", job.conversation, job.attempts);
            }
            Err(error) => warn!("could not record the failure, the lease will end: {error}"),
        }
    }

    /// Wakes the loops when servers or other workers ring; without a connection they poll.
    async fn listen(&self) {
        loop {
            match self.store.listen().await {
                Ok(mut rings) => loop {
                    match rings.next().await {
                        Ok(Some(kind)) => self.wake[kind_index(kind)].notify_one(),
                        Ok(None) => {}
                        Err(error) => {
                            debug!("lost the doorbell: {error}");
                            break;
                        }
                    }
                },
                Err(error) => debug!("no doorbell: {error}"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(crate) const fn batch(&self, kind: JobKind) -> u32 {
        match kind {
            JobKind::CountTokens => self.settings.count_batch,
            JobKind::Checkpoint | JobKind::SummarizeMessages => self.settings.summary_concurrency,
        }
    }

    pub(crate) const fn concurrency(&self, kind: JobKind) -> usize {
        match kind {
            JobKind::CountTokens => self.settings.count_concurrency as usize,
            JobKind::Checkpoint | JobKind::SummarizeMessages => self.settings.summary_concurrency as usize,
        }
    }
}

fn kind_index(kind: JobKind) -> usize {
    JobKind::ALL.iter().position(|other| *other == kind).unwrap_or(0)
}

/// A number from 0 to 1, different every time: spreads what would otherwise happen at once.
pub(crate) fn jitter() -> f64 {
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    random as f64 / u64::MAX as f64
}
