//! The events that readers emit, and the values that writers take.

use std::collections::BTreeMap;

use anneal_core::message::Message;

use crate::Remark;

/// The data that a file has about a conversation as a whole, apart from its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The file's own id of the conversation (a session id), which stays the same while the file
    /// grows. Empty: the file gives none, and the conversation is identified by its content.
    pub identity: String,
    /// The title; empty: anneal chooses one.
    pub title: String,
    /// The agent that the file names; empty: none.
    pub agent_id: String,
    /// The system prompt; empty: none.
    pub system_prompt: String,
    /// All other fields that the file has for the conversation.
    pub metadata: BTreeMap<String, String>,
    /// Creation time in microseconds since 1970. Set only for writers, and only if it is known.
    /// Readers leave it out: they put a time that the file has into the metadata.
    pub created_us: Option<i64>,
    /// What it has in common with an earlier conversation of the file, of which it is a branch. Set
    /// only by readers. None: it is no branch, or the other conversation was not read.
    pub shared: Option<SharedBeginning>,
    /// Whether later conversations of the file may be branches of it. Set only by readers.
    pub has_branches: bool,
}

/// The beginning that two conversations of a file have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBeginning {
    /// The other conversation: the number of conversations of the file before it.
    pub conversation: usize,
    /// Number of messages that both begin with.
    pub messages: u64,
    /// Number of messages, summaries and separators that both begin with.
    pub items: u64,
}

/// A summary that the other system made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of messages that it summarizes, counted from the first message of the conversation.
    pub covers: u64,
    /// The text of the summary.
    pub text: String,
    /// The model that wrote it; empty: the file does not say.
    pub model: String,
    /// Tokens before the compaction, as counted by the other system; None: the file does not say.
    pub tokens_before: Option<u64>,
    /// Tokens after the compaction, as counted by the other system; None: the file does not say.
    pub tokens_after: Option<u64>,
    /// When it was made, in microseconds since 1970. Set only for writers.
    pub created_us: Option<i64>,
}

/// One item of a file. Items that follow a [`FileEvent::Conversation`] belong to it, until the next
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// A conversation begins.
    Conversation(Head),
    /// The next message of the conversation.
    Message(Message),
    /// A summary of the conversation. It follows the last message that the other system had when it
    /// made the summary.
    Summary(Summary),
    /// A separator of the user: contexts start after it.
    Separator,
    /// A remark about an item that was not kept unchanged.
    Remark(Remark),
}

/// Receives the events of a reader. An error ends the reading.
pub trait Sink {
    /// Takes the next event.
    fn take(&mut self, event: FileEvent) -> Result<(), Stopped>;
}

impl<F: FnMut(FileEvent) -> Result<(), Stopped>> Sink for F {
    fn take(&mut self, event: FileEvent) -> Result<(), Stopped> {
        self(event)
    }
}

/// The sink takes no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reading was stopped")]
pub struct Stopped;

/// A stored message, as a writer takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message id: 1, 2, 3 …
    pub id: i64,
    /// Role, parts and metadata.
    pub message: Message,
    /// When it was stored, in microseconds since 1970.
    pub created_us: i64,
}
