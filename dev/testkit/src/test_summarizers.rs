//! Summarizers for tests: one that waits for the test, and one that panics.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use anneal_llm::{Extractive, Summarizer, Summary, SummaryAsk, SummaryFailure};
use tokio::sync::Semaphore;

/// A summarizer whose every summary waits until the test calls [`Self::release_one`]. All clones
/// share the gate.
#[derive(Clone)]
pub struct GatedSummarizer {
    begun: Arc<Semaphore>,
    release: mpsc::Sender<()>,
    released: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Default for GatedSummarizer {
    fn default() -> Self {
        let (release, released) = mpsc::channel();
        Self {
            begun: Arc::new(Semaphore::new(0)),
            release,
            released: Arc::new(Mutex::new(released)),
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
        self.release.send(()).expect("the receiver is kept here");
    }
}

impl Summarizer for GatedSummarizer {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
        self.begun.add_permits(1);
        let released = self.released.lock().expect("no panic while it is held");
        released.recv().expect("the sender is kept here");
        drop(released);
        Extractive.summarize(ask)
    }
}

/// A summarizer that panics if a source contains [`Self::WORD`]. It counts its calls.
#[derive(Clone, Default)]
pub struct PanickingSummarizer {
    call_count: Arc<AtomicUsize>,
}

impl PanickingSummarizer {
    /// The word that makes it panic.
    pub const WORD: &'static str = "PANIC-HERE";

    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        self.call_count.load(Ordering::SeqCst)
    }
}

impl Summarizer for PanickingSummarizer {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn prompt_version(&self) -> i32 {
        1
    }

    fn summarize(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
        self.call_count.fetch_add(1, Ordering::SeqCst);
        let mut texts = ask.sources.iter().flat_map(anneal_llm::Source::texts);
        assert!(
            !texts.any(|text| text.contains(Self::WORD)),
            "the test wants this panic"
        );
        Extractive.summarize(ask)
    }
}
