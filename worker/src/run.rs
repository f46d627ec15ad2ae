//! The worker: claim, run, record. A loop per kind of job, heartbeats and chores beside them.

use std::{
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::{
    caller::TenantId,
    job::{JobKind, backoff},
    tokens::Encoding,
};
use anneal_llm::{ModelAccess, Summarizer, provider::Model};
use anneal_store::{ClaimedJob, Doorbell, Failed, Store};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};
use uuid::Uuid;

use crate::{
    chores, jobs,
    leases::Leases,
    outcome::{JobError, Outcome, What},
    settings::{SummarizerSettings, WorkerSettings},
    summarize::{Summaries, Writer},
};

/// Jobs of one tenant in one claim, as a share of the claim: the others get the rest.
const TENANT_SHARE: u32 = 2;

/// Runs jobs. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    pub(crate) store: Store,
    pub(crate) summaries: Summaries,
    pub(crate) threads: Arc<Semaphore>,
    pub(crate) lengths: SummarizerSettings,
    settings: WorkerSettings,
    leases: Arc<Leases>,
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
                    worker.bell.run(worker.store.clone()),
                    worker.listen(),
                )
            }
        });
        let beside = tokio::spawn(beside);
        let mut loops = JoinSet::new();
        for kind in JobKind::ALL {
            let (worker, stop) = (self.clone(), stop.clone());
            loops.spawn(async move { worker.run_kind(kind, stop).await });
        }
        while loops.join_next().await.is_some() {}
        background.cancel();
        let _ = beside.await;
        info!("stopped working");
    }

    /// Runs due jobs until none is left: the worker, stepped by hand. Returns how many ran.
    pub async fn run_until_idle(&self) -> usize {
        let mut total = 0;
        loop {
            let mut ran = 0;
            for kind in JobKind::ALL {
                let claimed = self.claim(kind, self.batch(kind), TenantId(Uuid::nil())).await;
                ran += claimed.len();
                for job in claimed {
                    self.run_job(job).await;
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
        let mut cursor = TenantId(Uuid::nil());
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            let free = self.batch(kind).saturating_sub(running.len() as u32);
            let claimed = if free == 0 { Vec::new() } else { self.claim(kind, free, cursor).await };
            cursor = claimed.iter().map(|job| job.tenant).max().unwrap_or(TenantId(Uuid::nil()));
            let found = !claimed.is_empty();
            for job in claimed {
                let (worker, room) = (self.clone(), Arc::clone(&room));
                running.spawn(async move {
                    let lease = worker.leases.hold(&job);
                    match room.acquire_owned().await {
                        Ok(_room) => worker.run_held(&job, &lease.lost).await,
                        Err(_) => worker.give_back(std::slice::from_ref(&job)).await,
                    }
                });
            }
            if !found || free == 0 {
                let pause = Duration::from_millis(u64::from(self.settings.poll_ms)).mul_f64(0.75 + 0.5 * jitter());
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.wake[kind_index(kind)].notified() => {}
                    Some(_) = running.join_next(), if !running.is_empty() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
        self.finish(kind, &room, running).await;
    }

    /// Lets started jobs finish and gives the others back; after `stop_seconds` gives everything back.
    async fn finish(&self, kind: JobKind, room: &Semaphore, mut running: JoinSet<()>) {
        room.close();
        let patience = Duration::from_secs(u64::from(self.settings.stop_seconds));
        let all_done = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all_done).await.is_ok() {
            return;
        }
        let left = self.leases.cancel(kind);
        running.shutdown().await;
        warn!(job.kind = kind.name(), "gave back {} {} jobs that did not finish in time", left.len(), kind.name());
        self.give_back(&left).await;
    }

    async fn give_back(&self, jobs: &[ClaimedJob]) {
        if let Err(error) = self.store.release_jobs(jobs).await {
            warn!("could not give jobs back, their leases will end: {error}");
        }
    }

    async fn claim(&self, kind: JobKind, limit: u32, cursor: TenantId) -> Vec<ClaimedJob> {
        let per_tenant = (limit / TENANT_SHARE).max(1);
        let first = TenantId(Uuid::nil());
        let mut claimed = self.store.claim_jobs(kind, limit as i32, per_tenant as i32, cursor, &self.name).await;
        if cursor != first && claimed.as_ref().is_ok_and(Vec::is_empty) {
            claimed = self.store.claim_jobs(kind, limit as i32, per_tenant as i32, first, &self.name).await;
        }
        match claimed {
            Ok(claimed) => {
                metrics::counter!("jobs_claimed_total", "kind" => kind.name()).increment(claimed.len() as u64);
                claimed
            }
            Err(error) => {
                warn!(job.kind = kind.name(), "could not claim {} jobs: {error}", kind.name());
                Vec::new()
            }
        }
    }

    async fn run_job(&self, job: ClaimedJob) {
        let lease = self.leases.hold(&job);
        self.run_held(&job, &lease.lost).await;
    }

    /// Runs a job whose lease is kept, and records what came of it. A panic fails this job only.
    async fn run_held(&self, job: &ClaimedJob, lost: &CancellationToken) {
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
        let seconds = started.elapsed().as_secs_f64();
        metrics::histogram!("job_duration_seconds", "kind" => kind).record(seconds);
        self.record(job, outcome, seconds * 1_000.0).instrument(span).await;
    }

    async fn record(&self, job: &ClaimedJob, outcome: Outcome, duration_ms: f64) {
        let kind = job.kind.name();
        match outcome {
            Ok(committed) => {
                metrics::counter!("jobs_done_total", "kind" => kind).increment(1);
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
                What::Defer { delay } => self.defer(job, &error, delay).await,
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
        if let Err(error) = self.store.defer_job(job, &error.to_string(), delay.as_millis() as i64).await {
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
        match self.store.fail_job(job, &error.to_string(), delay.as_millis() as i64, starts).await {
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

    const fn batch(&self, kind: JobKind) -> u32 {
        match kind {
            JobKind::CountTokens => self.settings.count_batch,
            JobKind::Checkpoint | JobKind::SummarizeMessages => self.settings.summary_concurrency,
        }
    }

    const fn concurrency(&self, kind: JobKind) -> usize {
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
