//! What a context is: messages to send, and what became of every message of the conversation.

use super::{Prefix, Repair};
use crate::{
    boundary::Boundary,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

/// What a part of the context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The system prompt.
    SystemPrompt,
    /// The checkpoint's summary.
    CheckpointSummary,
    /// Stored messages after the boundary.
    Tail,
    /// What the caller gave with the call.
    CurrentInput,
}

/// One message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextMessage {
    /// What it is.
    pub segment: Segment,
    /// Who speaks. A checkpoint's summary is the user's: data, never an instruction.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// The stored messages that it stands for.
    pub message_ids: Vec<MessageId>,
    /// Tokens, framing included.
    pub tokens: Tokens,
}

/// How messages appear in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// As said.
    Original,
    /// As the summary of the one message.
    Summary,
    /// Within the checkpoint's summary.
    Checkpoint,
    /// Not at all: before the last separator.
    BeforeSeparator,
    /// As said, with its middle left out.
    Clipped,
    /// Not at all, to fit the budget, or because one context reads no more.
    Dropped,
    /// Not at all: a provider would refuse it.
    Repaired,
}

/// Why messages appear as they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Not large.
    Small,
    /// Large, and too young to be swapped.
    Hot,
    /// Large and cool, without a summary yet.
    SummaryPending,
    /// Large, cool and summarised: sent as its summary.
    Cool,
    /// Large, cool and summarised, and still sent as it was said: the next step of stepped cooling swaps it.
    StepPending,
    /// Covered by the checkpoint.
    Checkpointed,
    /// A separator stands after it.
    Separated,
    /// The budget asked for it.
    Budget,
    /// As much as one context reads is newer.
    ContentLimit,
    /// A tool result without a call.
    ResultWithoutCall,
    /// Nothing in it can be sent.
    Empty,
    /// An oversized tool result, when a model has refused the context.
    Pressure,
    /// Said again directly after; sent once.
    Repeated,
}

/// A run of messages with one representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The first message.
    pub first: MessageId,
    /// The last message.
    pub last: MessageId,
    /// How they appear.
    pub representation: Representation,
    /// Why.
    pub reason: Reason,
    /// Tokens that they take in the context, framing not included.
    pub tokens: Tokens,
    /// Tokens of the originals; zero where nothing was read.
    pub original_tokens: Tokens,
    /// More than the hot zone's radius old; only said of the tail.
    pub cool: bool,
    /// Byte ranges of the plain text that a clip left out.
    pub clipped: Vec<std::ops::Range<usize>>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// In the order to send.
    pub messages: Vec<ContextMessage>,
    /// Every id from 1 to the newest, once, in order.
    pub manifest: Vec<ManifestEntry>,
    /// What was changed for the providers' sake.
    pub repairs: Vec<Repair>,
    /// Tokens of `messages`, framing included; an upper bound where messages were merged.
    pub total: Tokens,
    /// Whether `total` rests on an estimate.
    pub estimated: bool,
    /// The newest message known.
    pub last_message_id: MessageId,
    /// Where the context starts.
    pub boundary: Boundary,
    /// The turn that coolness was measured from.
    pub current_turn: i32,
    /// How its beginning relates to the last one's.
    pub prefix: Prefix,
}

/// The budget cannot hold even what must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a budget of {budget} tokens cannot hold the system prompt ({system_prompt}) and the newest message (at least {newest})"
)]
pub struct BudgetTooSmall {
    /// What was asked for.
    pub budget: Tokens,
    /// What the system prompt takes.
    pub system_prompt: Tokens,
    /// What the newest message takes when cut as far as it goes.
    pub newest: Tokens,
}
