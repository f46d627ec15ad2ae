//! Summarisers for tests: one that waits for the test, and one that panics.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anneal_llm::{
    BoxFuture, Extractive, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind,
};
use tokio::sync::Semaphore;

/// A summariser that waits for [`Self::release_one`] in every summary.
#[derive(Clone)]
pub struct GatedSummarizer {
    begun: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl Default for GatedSummarizer {
    fn default() -> Self {
        Self {
            begun: Arc::new(Semaphore::new(0)),
            go_on: Arc::new(Semaphore::new(0)),
        }
    }
}

impl GatedSummarizer {
    /// Waits until one more summary has begun.
    pub async fn wait_until_begun(&self) {
        self.begun.acquire().await.expect("never closed").forget();
    }

    /// Lets one waiting summary continue.
    pub fn release_one(&self) {
        self.go_on.add_permits(1);
    }
}

impl Summarizer for GatedSummarizer {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Extractive
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize<'a>(
        &'a self,
        ask: &'a SummaryAsk<'a>,
    ) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move {
            self.begun.add_permits(1);
            self.go_on.acquire().await.expect("never closed").forget();
            Extractive.summarize(ask).await
        })
    }
}

/// A summariser that panics if a source contains [`Self::WORD`]. It counts its calls.
#[derive(Clone, Default)]
pub struct PanickingSummarizer {
    asked: Arc<AtomicUsize>,
}

impl PanickingSummarizer {
    /// The word that makes it panic.
    pub const WORD: &'static str = "PANIC-HERE";

    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Summarizer for PanickingSummarizer {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Extractive
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize<'a>(
        &'a self,
        ask: &'a SummaryAsk<'a>,
    ) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let texts = ask.sources.iter().flat_map(anneal_llm::Source::texts);
            assert!(
                !texts.into_iter().any(|text| text.contains(Self::WORD)),
                "the test wants this panic"
            );
            Extractive.summarize(ask).await
        })
    }
}
