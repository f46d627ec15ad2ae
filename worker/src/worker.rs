//! The worker's state, and how the results of its jobs are recorded.

use std::{sync::Arc, time::Duration};

use anneal_core::job::{JobKind, backoff};
use anneal_llm::{ModelAccess, Summarizer, SummaryFailure, provider::Model};
use anneal_store::{ClaimedJob, FailOutcome, JobNotifier, Store};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::{debug, info, warn};

use crate::{
    deadline::DB_DEADLINE,
    leases::Leases,
    model_pauses::ModelPauses,
    retention_settings::RetentionSettings,
    retry_policy::{JobError, Outcome, RetryDecision},
    settings::{SummarizerSettings, WorkerSettings},
    summarize::{Summarizers, SummaryModel, SummarySetup},
};

/// Runs jobs. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    pub(crate) store: Store,
    pub(crate) summarizers: Summarizers,
    /// Permits for threads that count single conversations or write extractive summaries. Batches
    /// of counting need none.
    pub(crate) threads: Arc<Semaphore>,
    pub(crate) settings: WorkerSettings,
    /// The settings for retention in force. A reload replaces them.
    pub(crate) retention: Arc<watch::Sender<Arc<RetentionSettings>>>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) pauses: Arc<ModelPauses>,
    pub(crate) notifier: JobNotifier,
    /// The signal of each kind's claim loop, in the order of [`JobKind::ALL`].
    work_signals: Arc<[Notify; JobKind::ALL.len()]>,
    /// The name under which jobs are claimed: host and process id.
    pub(crate) name: Arc<str>,
}

impl Worker {
    /// A worker on a store, with the built-in summarizer, which needs no model.
    pub fn new(
        store: Store,
        summarizer: Arc<dyn Summarizer>,
        settings: WorkerSettings,
        summary_settings: SummarizerSettings,
    ) -> Self {
        let store = store.with_deadline(DB_DEADLINE);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = Arc::new(Semaphore::new(if settings.threads == 0 {
            cores
        } else {
            settings.threads as usize
        }));
        Self {
            summarizers: Summarizers::new(
                store.clone(),
                summarizer,
                summary_settings,
                Arc::clone(&threads),
            ),
            store,
            threads,
            settings,
            retention: Arc::new(watch::Sender::new(Arc::default())),
            leases: Arc::default(),
            pauses: Arc::default(),
            notifier: JobNotifier::default(),
            work_signals: Arc::new([const { Notify::const_new() }; JobKind::ALL.len()]),
            name: anneal_process::name().into(),
        }
    }

    /// Replaces the settings of summaries and the model that writes them, for this worker and all
    /// its clones; None: the built-in summarizer. The metrics show the breakers of all models of
    /// `access`. Jobs under way keep what they began with.
    pub fn replace_summarizer(
        &self,
        settings: SummarizerSettings,
        access: Arc<ModelAccess>,
        model: Option<Arc<Model>>,
    ) {
        self.summarizers.replace_setup(SummarySetup {
            settings,
            reported_models: access.models.names().map(str::to_owned).collect(),
            model: model.map(|model| SummaryModel::new(access, model)),
        });
    }

    /// Replaces the settings for retention, for this worker and all its clones. A worker has the
    /// default settings at first.
    pub fn replace_retention(&self, settings: &RetentionSettings) {
        self.retention.send_if_modified(|in_force| {
            let is_changed = **in_force != *settings;
            if is_changed {
                *in_force = Arc::new(settings.clone());
            }
            is_changed
        });
    }

    /// The signal that wakes the claim loop of a kind. Notify it when jobs of the kind may be due.
    pub(crate) fn work_signal(&self, kind: JobKind) -> &Notify {
        &self.work_signals[kind_index(kind)]
    }

    /// Releases jobs that did not run, or were cancelled before they ended; they are due after
    /// `delay`.
    pub(crate) async fn release(&self, jobs: &[ClaimedJob], delay: Duration) {
        if jobs.is_empty() {
            return;
        }
        if let Err(error) = self
            .store
            .release_jobs(jobs, delay.as_millis() as i64)
            .await
        {
            self.store.log_failure(&error, || {
                warn!("could not release jobs, they run again when their leases end: {error}");
            });
        }
    }

    /// Records the result of a job. After a success, wakes the loops of the jobs that it caused.
    /// After a failure, defers the job, lets it be tried again, or gives it up. Stores nothing if
    /// the job was cancelled, has lost its lease, or has no conversation any more.
    pub(crate) async fn record(&self, job: &ClaimedJob, outcome: Outcome, duration: Duration) {
        let kind = job.kind.name();
        metrics::histogram!("anneal_job_duration_seconds", "kind" => kind)
            .record(duration.as_secs_f64());
        match outcome {
            Ok(committed) => {
                metrics::counter!("anneal_jobs_done_total", "kind" => kind).increment(1);
                let duration_ms = duration.as_secs_f64() * 1_000.0;
                debug!(
                    duration_ms,
                    "ran {kind} job of {} in {duration_ms:.1} ms", job.conversation
                );
                for caused in &committed.caused {
                    self.work_signal(*caused).notify_one();
                }
                self.notifier.notify(&committed.caused);
            }
            Err(error) if error.is_obsolete() => {
                debug!(
                    "nothing to record of the {kind} job of {}: {error}",
                    job.conversation
                );
            }
            Err(JobError::Cancelled) => debug!("{kind} job of {} was cancelled", job.conversation),
            Err(error) => match error.decision() {
                RetryDecision::Defer { delay } => {
                    self.pauses.add(job.tenant, &error);
                    self.defer(job, &error, delay).await;
                }
                RetryDecision::Retry {
                    min_delay,
                    max_starts,
                } => {
                    let delay = backoff(job.attempts, fastrand::f64()).max(min_delay);
                    self.fail(job, &error, delay, max_starts).await;
                }
            },
        }
    }

    /// Defers a job: it waits, and this start does not count.
    async fn defer(&self, job: &ClaimedJob, error: &JobError, delay: Duration) {
        let kind = job.kind.name();
        // Up to a tenth longer, so that jobs that wait for the same thing do not start all at once.
        let delay = delay.mul_f64(1.0 + 0.1 * fastrand::f64());
        let log_line = || {
            info!(
                retry_ms = delay.as_millis() as u64,
                "{kind} job of {} waits: {error}", job.conversation
            );
        };
        match error {
            JobError::Store(error) => self.store.log_failure(error, log_line),
            // What interrupts a summary has a line of its own, or needs none: an outage of the
            // database interrupts all summaries again and again.
            JobError::Summary(SummaryFailure::Interrupted(_)) => {
                debug!("{kind} job of {} waits: {error}", job.conversation);
            }
            _ => log_line(),
        }
        metrics::counter!("anneal_jobs_deferred_total", "kind" => kind).increment(1);
        if let Err(error) = self
            .store
            .defer_job(job, &error.to_string(), delay.as_millis() as i64)
            .await
        {
            self.store.log_failure(&error, || {
                warn!("could not defer the job, it runs again when its lease ends: {error}");
            });
        }
    }

    /// Records a failure. After `max_starts` starts the store moves the job to the dead jobs.
    async fn fail(&self, job: &ClaimedJob, error: &JobError, delay: Duration, max_starts: i16) {
        let kind = job.kind.name();
        let log_line = || {
            warn!(
                attempts = job.attempts,
                retry_ms = delay.as_millis() as u64,
                "{kind} job of {} failed: {error}",
                job.conversation
            );
        };
        match error {
            JobError::Store(error) => self.store.log_failure(error, log_line),
            _ => log_line(),
        }
        metrics::counter!("anneal_jobs_failed_total", "kind" => kind).increment(1);
        let (reason, delay_ms) = (error.to_string(), delay.as_millis() as i64);
        let recorded = if job.kind == JobKind::Checkpoint && error.is_bad_output() {
            self.store
                .fail_checkpoint(job, &reason, delay_ms, max_starts)
                .await
        } else {
            self.store
                .fail_job(job, &reason, delay_ms, max_starts)
                .await
        };
        match recorded {
            Ok(FailOutcome::Retry) => {}
            Ok(FailOutcome::Dead) => {
                metrics::counter!("anneal_jobs_dead_total").increment(1);
                warn!(
                    "gave up the {kind} job of {} after {} starts",
                    job.conversation, job.attempts
                );
            }
            Err(error) => self.store.log_failure(&error, || {
                warn!(
                    "could not record the failure, the job runs again when its lease ends: {error}"
                );
            }),
        }
    }
}

/// The place of a kind in [`JobKind::ALL`], which has every kind. So the default is never used.
fn kind_index(kind: JobKind) -> usize {
    JobKind::ALL
        .iter()
        .position(|other| *other == kind)
        .unwrap_or(0)
}
