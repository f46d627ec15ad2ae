//! A file, read on a thread of its own and handed over in small batches, so that memory is bounded by a few messages.

use std::path::PathBuf;

use anneal_core::message::{Message, Part, plain_text_bytes};
use anneal_formats::{Format, Found, ReadError, ReadOptions, Stopped, read};
use tokio::{sync::mpsc, task::JoinHandle};

/// Things of one batch at most.
const BATCH: usize = 100;
/// Bytes after which a batch goes out.
const BATCH_BYTES: usize = 512 * 1024;
/// Batches that wait to be taken.
const WAITING: usize = 2;

/// What is read, and how.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) options: ReadOptions,
    /// Where the file lies, as a label has it; None: it was not named by its place.
    pub(super) origin: Option<String>,
}

/// A file that is being read.
pub(super) struct Reading {
    batches: mpsc::Receiver<Vec<Found>>,
    thread: JoinHandle<Result<(), ReadError>>,
}

impl Reading {
    /// Begins to read.
    pub(super) fn start(source: Source) -> Self {
        let (sender, batches) = mpsc::channel(WAITING);
        let thread = tokio::task::spawn_blocking(move || {
            let mut outlet = Outlet { sender, batch: Vec::new(), bytes: 0 };
            read(&source.path, source.format, &source.options, &mut |found| outlet.take(found))?;
            Ok(outlet.flush()?)
        });
        Self { batches, thread }
    }

    /// The next things, in order; None at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<Found>> {
        self.batches.recv().await
    }

    /// How it ended.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        drop(self.batches);
        Ok(self.thread.await??)
    }
}

/// Where the reader puts what it finds.
struct Outlet {
    sender: mpsc::Sender<Vec<Found>>,
    batch: Vec<Found>,
    bytes: usize,
}

impl Outlet {
    fn take(&mut self, found: Found) -> Result<(), Stopped> {
        self.bytes += if let Found::Message(message) = &found { bytes(message) } else { 0 };
        self.batch.push(found);
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.bytes = 0;
        self.sender.blocking_send(std::mem::take(&mut self.batch)).map_err(|_| Stopped)
    }
}

/// About how much a message takes: its texts, and pictures that lie within it.
fn bytes(message: &Message) -> usize {
    let media = message.parts.iter().map(|part| match part {
        Part::Media(media) => media.uri.len(),
        Part::ToolResult { media, .. } => media.iter().map(|media| media.uri.len()).sum(),
        Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => 0,
    });
    plain_text_bytes(&message.parts) + media.sum::<usize>()
}
