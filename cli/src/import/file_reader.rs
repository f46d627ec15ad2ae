//! Reads a file on a blocking thread and passes its events on in small batches, so that only a few
//! messages are in memory.

use std::path::PathBuf;

use anneal_core::message::{Message, Part, plain_text_bytes};
use anneal_formats::{FileEvent, Format, ReadError, ReadOptions, Stopped, read};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::session_index::IndexEntry;

/// Most events per batch.
const BATCH_EVENTS: usize = 100;
/// A batch is passed on when its messages have this many bytes.
const BATCH_BYTES: usize = 512 * 1024;
/// Most batches that wait in the channel.
const WAITING_BATCHES: usize = 2;

/// The file and the options of the reader.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) read_options: ReadOptions,
    /// The value of the label `anneal.import.source` for the path of the file. None: no label,
    /// because the name of the session was given, or the file has no path or one that cannot be
    /// resolved.
    pub(super) origin: Option<String>,
    /// The entry of the file in the index beside it. None: there is none, or the name of the
    /// session was given.
    pub(super) index: Option<IndexEntry>,
}

/// A file that is being read.
pub(super) struct FileReader {
    batches: mpsc::Receiver<Vec<FileEvent>>,
    thread: JoinHandle<Result<(), ReadError>>,
}

impl FileReader {
    /// Starts the reader.
    pub(super) fn start(source: Source) -> Self {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES);
        let thread = tokio::task::spawn_blocking(move || {
            let mut batch_sender = BatchSender {
                sender,
                batch: Vec::new(),
                bytes: 0,
            };
            read(
                &source.path,
                source.format,
                &source.read_options,
                &mut |event| batch_sender.add(event),
            )?;
            Ok(batch_sender.flush()?)
        });
        Self { batches, thread }
    }

    /// The next events, in order; None at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<FileEvent>> {
        self.batches.recv().await
    }

    /// Waits for the reader to end, and returns its result.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        drop(self.batches);
        Ok(self.thread.await??)
    }
}

/// Collects events into batches.
struct BatchSender {
    sender: mpsc::Sender<Vec<FileEvent>>,
    batch: Vec<FileEvent>,
    bytes: usize,
}

impl BatchSender {
    fn add(&mut self, event: FileEvent) -> Result<(), Stopped> {
        self.bytes += if let FileEvent::Message(message) = &event {
            message_bytes(message)
        } else {
            0
        };
        self.batch.push(event);
        if self.batch.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.bytes = 0;
        self.sender
            .blocking_send(std::mem::take(&mut self.batch))
            .map_err(|_| Stopped)
    }
}

/// Approximate size of a message: its texts and embedded media.
fn message_bytes(message: &Message) -> usize {
    let media = message.parts.iter().map(|part| match part {
        Part::Media(media) => media.uri.len(),
        Part::ToolResult { media, .. } => media.iter().map(|media| media.uri.len()).sum(),
        Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => 0,
    });
    plain_text_bytes(&message.parts) + media.sum::<usize>()
}
