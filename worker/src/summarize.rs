//! One call of the summariser, on a thread that may be busy for long. No connection is held meanwhile.

use std::sync::Arc;

use anneal_core::{
    message::MessageId,
    tokens::{Encoding, Tokens},
};
use anneal_llm::{Purpose, Quote, Source, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind};
use anneal_store::SummarySpec;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::outcome::JobError;

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

/// The summariser, and the threads it may use.
#[derive(Clone)]
pub(crate) struct Summaries {
    summarizer: Arc<dyn Summarizer>,
    threads: Arc<Semaphore>,
}

impl Summaries {
    pub(crate) fn new(summarizer: Arc<dyn Summarizer>, threads: Arc<Semaphore>) -> Self {
        Self { summarizer, threads }
    }

    /// The summary of the material.
    pub(crate) async fn make(&self, material: Material) -> Result<SummarySpec, JobError> {
        let _thread = self.threads.acquire().await.map_err(|_| JobError::Cancelled)?;
        let summarizer = Arc::clone(&self.summarizer);
        let runtime = Handle::current();
        let made = tokio::task::spawn_blocking(move || runtime.block_on(ask(summarizer.as_ref(), &material)));
        let summary = made.await.map_err(|_| JobError::Panicked)??;
        Ok(SummarySpec {
            text: summary.text,
            tokens: summary.tokens,
            by_model: self.summarizer.kind() == SummaryKind::Llm,
            model: self.summarizer.name().to_owned(),
            prompt_version: self.summarizer.prompt_version(),
        })
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
