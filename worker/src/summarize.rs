//! Writes one summary: with the language model if one is configured, else with the built-in
//! summarizer. If the setting `summarizer.fallback` allows it, the built-in summarizer also
//! replaces a model that fails; otherwise the job fails, and `retry_policy` decides whether it is
//! tried again.
//!
//! A reload replaces the model and the settings; a job under way keeps those with which it began.
//!
//! The work runs on a blocking thread, because it may occupy the processor for long. No database
//! connection is held.

use std::{sync::Arc, time::Instant};

use anneal_core::{
    caller::ConversationId,
    job::MAX_ATTEMPTS,
    message::MessageId,
    tokens::{Encoding, Tokens},
};
use anneal_llm::{
    Measure, ModelAccess, ModelSummarizer, Purpose, Quote, Source, Summarizer, Summary, SummaryAsk,
    SummaryFailure,
    provider::{AdmissionRefusal, CallFailure, Model},
};
use anneal_store::{ClaimedJob, ModelSpend, Store, SummaryKind, SummarySpec};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug, info};

use crate::{
    retry_policy::JobError,
    settings::{Fallback, SummarizerSettings},
    summary_calls::JobCalls,
};

/// The messages to summarize, and the requirements of the summary. Owned, so that they can move to
/// another thread.
pub(crate) struct Material {
    pub(crate) purpose: Purpose,
    pub(crate) encoding: Encoding,
    /// The summary that this one continues.
    pub(crate) previous: Option<String>,
    /// A text that the summary quotes word for word, and the id of its message.
    pub(crate) quoted: Option<(MessageId, String)>,
    pub(crate) sources: Vec<Source>,
    /// What the caller wants the summary to pay attention to; empty: nothing special.
    pub(crate) focus: String,
    /// The longest that the summary may be.
    pub(crate) target: Tokens,
}

impl Material {
    /// A function that counts the tokens of a text in the conversation's encoding.
    fn measure(&self) -> impl Fn(&str) -> Tokens + use<> {
        let counter = self.encoding.counter();
        move |text| counter.count(text)
    }

    fn ask<'a>(&'a self, measure: &'a Measure) -> SummaryAsk<'a> {
        SummaryAsk {
            purpose: self.purpose,
            previous: self.previous.as_deref(),
            quoted: self.quoted.as_ref().map(|(id, text)| Quote {
                message_id: *id,
                text,
            }),
            sources: &self.sources,
            focus: (!self.focus.is_empty()).then_some(self.focus.as_str()),
            target: self.target,
            measure,
        }
    }
}

/// The language model that writes summaries.
#[derive(Clone)]
pub(crate) struct SummaryModel {
    pub(crate) access: Arc<ModelAccess>,
    pub(crate) model: Arc<Model>,
    /// One permit for each call of the model that this process may have under way.
    pub(crate) permits: Arc<Semaphore>,
}

impl SummaryModel {
    pub(crate) fn new(access: Arc<ModelAccess>, model: Arc<Model>) -> Self {
        let calls = model
            .concurrent_calls()
            .map_or(Semaphore::MAX_PERMITS, |calls| calls as usize);
        Self {
            access,
            model,
            permits: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// How summaries are written. A reload replaces it.
pub(crate) struct SummarySetup {
    pub(crate) settings: SummarizerSettings,
    /// None: the built-in summarizer writes all summaries.
    pub(crate) model: Option<SummaryModel>,
    /// The models whose breakers are reported as metrics, those of turns among them.
    pub(crate) reported_models: Vec<String>,
}

/// The built-in summarizer, the threads that it may use, and the setup in force. Clones share the
/// setup.
#[derive(Clone)]
pub(crate) struct Summarizers {
    store: Store,
    builtin: Arc<dyn Summarizer>,
    setup: Arc<watch::Sender<Arc<SummarySetup>>>,
    threads: Arc<Semaphore>,
}

impl Summarizers {
    /// Summarizers without a model.
    pub(crate) fn new(
        store: Store,
        builtin: Arc<dyn Summarizer>,
        settings: SummarizerSettings,
        threads: Arc<Semaphore>,
    ) -> Self {
        let setup = SummarySetup {
            settings,
            model: None,
            reported_models: Vec::new(),
        };
        Self {
            store,
            builtin,
            setup: Arc::new(watch::Sender::new(Arc::new(setup))),
            threads,
        }
    }

    /// The setup in force. A job reads it once.
    pub(crate) fn setup(&self) -> Arc<SummarySetup> {
        Arc::clone(&self.setup.borrow())
    }

    pub(crate) fn replace_setup(&self, setup: SummarySetup) {
        self.setup.send_replace(Arc::new(setup));
    }

    /// Summarizes the material with the setup with which the job began. When the job's lease is
    /// lost or the worker stops, `lost` is cancelled, which ends the calls of the model.
    pub(crate) async fn summarize(
        &self,
        setup: &SummarySetup,
        job: &ClaimedJob,
        material: Material,
        lost: &CancellationToken,
    ) -> Result<SummarySpec, JobError> {
        let started = Instant::now();
        let material = Arc::new(material);
        let mut spent = ModelSpend::default();
        let by_model = match &setup.model {
            None => None,
            Some(model) => {
                let (result, cost) = self
                    .summarize_with_model(model, job, &material, lost)
                    .await?;
                spent = cost;
                match result {
                    Ok(summary) => Some(spec(
                        summary,
                        SummaryKind::Llm,
                        model.model.name(),
                        ModelSummarizer::PROMPT_VERSION,
                    )),
                    Err(failure)
                        if setup.settings.fallback == Fallback::Extractive
                            && is_final(&failure, job.attempts) =>
                    {
                        metrics::counter!("anneal_summaries_fallback_total", "reason" => reason(&failure))
                            .increment(1);
                        log_fallback(job.conversation, &failure);
                        None
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
        };
        let summary = match by_model {
            Some(summary) => summary,
            None => self.summarize_with_builtin(&material).await?,
        };
        let duration_ms = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Ok(SummarySpec {
            spent,
            duration_ms,
            ..summary
        })
    }

    /// Has the model write the summary. Returns the summary, or why there is none, and the cost of
    /// the calls.
    async fn summarize_with_model(
        &self,
        model: &SummaryModel,
        job: &ClaimedJob,
        material: &Arc<Material>,
        lost: &CancellationToken,
    ) -> Result<(Result<Summary, SummaryFailure>, ModelSpend), JobError> {
        let (store, model, job) = (self.store.clone(), model.clone(), job.clone());
        let (material, lost) = (Arc::clone(material), lost.clone());
        let (runtime, span) = (Handle::current(), Span::current());
        let writing = tokio::task::spawn_blocking(move || {
            let calls = JobCalls::new(
                &store,
                &model.access,
                &model.model,
                &model.permits,
                &job,
                &lost,
            );
            let summarizer = ModelSummarizer::new(&model.model, &calls);
            let measure = material.measure();
            // Between its calls the summarizer cuts and checks texts of any length. So its future
            // is polled on this blocking thread.
            let ask = material.ask(&measure);
            let result = runtime.block_on(summarizer.summarize(&ask).instrument(span));
            (result, calls.spent())
        });
        writing.await.map_err(|_| JobError::Panicked)
    }

    /// Has the built-in summarizer write the summary.
    async fn summarize_with_builtin(
        &self,
        material: &Arc<Material>,
    ) -> Result<SummarySpec, JobError> {
        let _thread = self
            .threads
            .acquire()
            .await
            .map_err(|_| JobError::Cancelled)?;
        let (builtin, material) = (Arc::clone(&self.builtin), Arc::clone(material));
        let writing = tokio::task::spawn_blocking(move || {
            let measure = material.measure();
            builtin.summarize(&material.ask(&measure))
        });
        let summary = writing.await.map_err(|_| JobError::Panicked)??;
        Ok(spec(
            summary,
            SummaryKind::Extractive,
            self.builtin.name(),
            self.builtin.prompt_version(),
        ))
    }
}

/// Whether the built-in summarizer should take over now, and not after another try: the model would
/// fail again, or the job has no start left.
const fn is_final(failure: &SummaryFailure, starts: i16) -> bool {
    failure.is_lasting() || matches!(failure, SummaryFailure::Call(_)) && starts >= MAX_ATTEMPTS
}

/// Logs that an extract replaces the model's summary. While a breaker is open, every summary is
/// replaced: the breaker has a line of its own, so these are at level debug.
fn log_fallback(conversation: ConversationId, failure: &SummaryFailure) {
    let line = format!(
        "the built-in summarizer summarizes {conversation}, because the model failed: {failure}"
    );
    if matches!(
        failure,
        SummaryFailure::NotAdmitted(AdmissionRefusal::Breaker { .. })
    ) {
        debug!("{line}");
    } else {
        info!("{line}");
    }
}

/// The value of the metrics' label `reason` for this failure.
const fn reason(failure: &SummaryFailure) -> &'static str {
    match failure {
        SummaryFailure::Call(CallFailure::Overflow { .. }) => "overflow",
        SummaryFailure::Call(_) | SummaryFailure::Filtered => "refused",
        SummaryFailure::NotAdmitted(AdmissionRefusal::Budget { .. }) => "budget",
        SummaryFailure::NotAdmitted(_) => "breaker",
        _ => "bad_writing",
    }
}

/// A summary to store. [`Summarizers::summarize`] sets `spent` and `duration_ms` afterwards.
fn spec(summary: Summary, kind: SummaryKind, model: &str, prompt_version: i32) -> SummarySpec {
    SummarySpec {
        text: summary.text,
        tokens: summary.tokens,
        kind,
        model: model.to_owned(),
        prompt_version,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}
