//! A summariser that waits until the test lets it go on, and one that fails as the test wants.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anneal_llm::{BoxFuture, Extractive, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind};
use tokio::sync::Semaphore;

/// Waits for the test in the middle of every summary.
#[derive(Clone)]
pub struct Waiting {
    begun: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { begun: Arc::new(Semaphore::new(0)), go_on: Arc::new(Semaphore::new(0)) }
    }
}

impl Waiting {
    /// Returns once one more summary has begun.
    pub async fn begun(&self) {
        self.begun.acquire().await.expect("never closed").forget();
    }

    /// Lets one summary go on.
    pub fn go_on(&self) {
        self.go_on.add_permits(1);
    }
}

impl Summarizer for Waiting {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Extractive
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize<'a>(&'a self, ask: &'a SummaryAsk<'a>) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move {
            self.begun.add_permits(1);
            self.go_on.acquire().await.expect("never closed").forget();
            Extractive.summarize(ask).await
        })
    }
}

/// Panics where a source says so, and counts how often it was asked.
#[derive(Clone, Default)]
pub struct Panicking {
    asked: Arc<AtomicUsize>,
}

impl Panicking {
    /// The word at which it panics.
    pub const WORD: &'static str = "PANIC-HERE";

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Summarizer for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Extractive
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize<'a>(&'a self, ask: &'a SummaryAsk<'a>) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let texts = ask.sources.iter().flat_map(anneal_llm::Source::texts);
            assert!(!texts.into_iter().any(|text| text.contains(Self::WORD)), "the test wants this panic");
            Extractive.summarize(ask).await
        })
    }
}
