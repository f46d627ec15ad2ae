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
    /// A permit for each summary that has begun and that the test has not waited for.
    begun: Arc<Semaphore>,
    /// Sends one message for each summary that may continue.
    release_sender: mpsc::Sender<()>,
    release_receiver: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Default for GatedSummarizer {
    fn default() -> Self {
        let (release_sender, receiver) = mpsc::channel();
        Self {
            begun: Arc::new(Semaphore::new(0)),
            release_sender,
            release_receiver: Arc::new(Mutex::new(receiver)),
        }
    }
}

impl GatedSummarizer {
    /// Waits until one more summary has begun.
    pub async fn wait_until_begun(&self) {
        let permit = self.begun.acquire().await;
        permit.expect("the semaphore is never closed").forget();
    }

    /// Lets one waiting summary continue.
    pub fn release_one(&self) {
        self.release_sender
            .send(())
            .expect("`self` keeps the receiver");
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
        let receiver = self
            .release_receiver
            .lock()
            .expect("no thread panics while holding the lock");
        receiver.recv().expect("`self` keeps a sender");
        drop(receiver);
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
