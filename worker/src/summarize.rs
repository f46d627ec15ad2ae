//! One summary: by the language model where there is one, else (and in its place, where the operator allows it) by the
//! built-in summariser. Runs on a thread that may be busy for long. No connection is held meanwhile.

use std::{sync::Arc, time::Instant};

use anneal_core::{
    job::MAX_ATTEMPTS,
    message::MessageId,
    tokens::{Encoding, Tokens},
};
use anneal_llm::{
    ModelAccess, ModelSummarizer, Purpose, Quote, Source, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind,
    provider::{CallFailure, Closed, Model},
};
use anneal_store::{ClaimedJob, ModelSpend, Store, SummarySpec};
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{desk::JobDesk, outcome::JobError, settings::Fallback};

/// What to summarise; owned, so that it can go to another thread.
pub(crate) struct Material {
    pub(crate) purpose: Purpose,
    pub(crate) encoding: Encoding,
    pub(crate) previous: Option<String>,
    pub(crate) quoted: Option<(MessageId, String)>,
    pub(crate) sources: Vec<Source>,
    pub(crate) focus: String,
    pub(crate) target: Tokens,
}

/// The language model that writes summaries.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) access: Arc<ModelAccess>,
    pub(crate) model: Arc<Model>,
    pub(crate) fallback: Fallback,
    /// Calls of it that this process may have under way.
    pub(crate) room: Arc<Semaphore>,
}

impl Writer {
    pub(crate) fn new(access: Arc<ModelAccess>, model: Arc<Model>, fallback: Fallback) -> Self {
        let room = model.concurrent_calls().map_or(Semaphore::MAX_PERMITS, |calls| calls as usize);
        Self { access, model, fallback, room: Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))) }
    }
}

/// The summarisers, and the threads that they may use.
#[derive(Clone)]
pub(crate) struct Summaries {
    store: Store,
    builtin: Arc<dyn Summarizer>,
    pub(crate) writer: Option<Writer>,
    threads: Arc<Semaphore>,
}

impl Summaries {
    pub(crate) fn new(store: Store, builtin: Arc<dyn Summarizer>, threads: Arc<Semaphore>) -> Self {
        Self { store, builtin, writer: None, threads }
    }

    /// The summary of the material. `lost` ends a model's calls: the job is not ours any more.
    pub(crate) async fn make(
        &self,
        job: &ClaimedJob,
        material: Material,
        lost: &CancellationToken,
    ) -> Result<SummarySpec, JobError> {
        let started = Instant::now();
        let material = Arc::new(material);
        let mut spent = ModelSpend::default();
        let made = match &self.writer {
            None => None,
            Some(writer) => {
                let (written, cost) = self.written(writer, job, &material, lost).await?;
                spent = cost;
                match written {
                    Ok(summary) => {
                        Some(spec(summary, SummaryKind::Llm, writer.model.name(), ModelSummarizer::PROMPT_VERSION))
                    }
                    Err(failure) if writer.fallback == Fallback::Extractive && is_settled(&failure, job.attempts) => {
                        metrics::counter!("summaries_fallback_total", "reason" => reason(&failure)).increment(1);
                        info!(
                            "the model gives no summary of {}, an extract takes its place: {failure}",
                            job.conversation
                        );
                        None
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
        };
        let made = match made {
            Some(made) => made,
            None => self.extracted(&material).await?,
        };
        let duration_ms = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Ok(SummarySpec { spent, duration_ms, ..made })
    }

    /// What the model writes, and what that cost.
    async fn written(
        &self,
        writer: &Writer,
        job: &ClaimedJob,
        material: &Arc<Material>,
        lost: &CancellationToken,
    ) -> Result<(Result<Summary, SummaryFailure>, ModelSpend), JobError> {
        let (store, writer, job) = (self.store.clone(), writer.clone(), job.clone());
        let (material, lost) = (Arc::clone(material), lost.clone());
        let runtime = Handle::current();
        let writing = tokio::task::spawn_blocking(move || {
            let desk = JobDesk::new(&store, &writer.access, &writer.model, &writer.room, &job, &lost);
            let written = runtime.block_on(ask(&ModelSummarizer::new(&writer.model, &desk), &material));
            (written, desk.spent())
        });
        writing.await.map_err(|_| JobError::Panicked)
    }

    async fn extracted(&self, material: &Arc<Material>) -> Result<SummarySpec, JobError> {
        let _thread = self.threads.acquire().await.map_err(|_| JobError::Cancelled)?;
        let (builtin, material) = (Arc::clone(&self.builtin), Arc::clone(material));
        let runtime = Handle::current();
        let made = tokio::task::spawn_blocking(move || runtime.block_on(ask(builtin.as_ref(), &material)));
        let summary = made.await.map_err(|_| JobError::Panicked)??;
        Ok(spec(summary, self.builtin.kind(), self.builtin.name(), self.builtin.prompt_version()))
    }
}

/// Whether waiting would not bring the model's summary, or too late.
const fn is_settled(failure: &SummaryFailure, starts: i16) -> bool {
    match failure {
        // The last start: what comes after it is nobody's any more.
        SummaryFailure::Call(failure) => !failure.is_retryable() || starts >= MAX_ATTEMPTS,
        SummaryFailure::Closed(Closed::Breaker { .. } | Closed::Budget { .. })
        | SummaryFailure::Filtered
        | SummaryFailure::NotShorter
        | SummaryFailure::NoRoom(_) => true,
        other => other.is_bad_writing(),
    }
}

/// The failure's name in metrics.
const fn reason(failure: &SummaryFailure) -> &'static str {
    match failure {
        SummaryFailure::Call(CallFailure::Overflow { .. }) => "overflow",
        SummaryFailure::Call(_) | SummaryFailure::Filtered => "refused",
        SummaryFailure::Closed(Closed::Budget { .. }) => "budget",
        SummaryFailure::Closed(_) => "breaker",
        _ => "bad_writing",
    }
}

fn spec(summary: Summary, kind: SummaryKind, model: &str, prompt_version: i32) -> SummarySpec {
    SummarySpec {
        text: summary.text,
        tokens: summary.tokens,
        kind: match kind {
            SummaryKind::Llm => anneal_store::SummaryKind::Llm,
            SummaryKind::Extractive => anneal_store::SummaryKind::Extractive,
        },
        model: model.to_owned(),
        prompt_version,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}

async fn ask(summarizer: &dyn Summarizer, material: &Material) -> Result<Summary, SummaryFailure> {
    let counter = material.encoding.counter();
    let measure = |text: &str| counter.count(text);
    let ask = SummaryAsk {
        purpose: material.purpose,
        previous: material.previous.as_deref(),
        quoted: material.quoted.as_ref().map(|(id, text)| Quote { message_id: *id, text }),
        sources: &material.sources,
        focus: (!material.focus.is_empty()).then_some(material.focus.as_str()),
        target: material.target,
        measure: &measure,
    };
    summarizer.summarize(&ask).await
}
