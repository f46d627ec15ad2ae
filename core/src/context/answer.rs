//! The output of a build: the messages to send, a manifest that says how each message of the
//! conversation is represented, and the repairs.

use super::Prefix;
use crate::{
    boundary::Boundary,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

/// The part of the context that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The system prompt.
    SystemPrompt,
    /// The checkpoint's summary.
    CheckpointSummary,
    /// Stored messages after the boundary.
    Tail,
    /// Messages that the caller sent with the call.
    CurrentInput,
}

/// One message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextMessage {
    /// The part of the context that it belongs to.
    pub segment: Segment,
    /// The role. A checkpoint's summary has the role user, because it is data and never an
    /// instruction.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
    /// The stored messages that it represents.
    pub message_ids: Vec<MessageId>,
    /// Tokens, including the provider's framing.
    pub tokens: Tokens,
}

/// How messages are represented in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// Unchanged.
    Original,
    /// By the summary of this one message.
    Summary,
    /// By the checkpoint's summary.
    Checkpoint,
    /// Not sent: it is before the last separator.
    BeforeSeparator,
    /// With the middle of its text left out.
    Clipped,
    /// Not sent, because of the budget or because one context reads no more content.
    Dropped,
    /// Not sent: the provider would refuse it.
    Repaired,
}

/// Why messages have their representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is not large.
    Small,
    /// It is large and still hot.
    Hot,
    /// It is large and cool, but has no summary yet.
    SummaryPending,
    /// It is large and cool, and its summary is sent.
    Cool,
    /// It is large and cool and has a summary, but the original is still sent. The next step of
    /// stepped cooling swaps it.
    StepPending,
    /// The checkpoint covers it.
    Checkpointed,
    /// A separator follows it.
    Separated,
    /// It was clipped or dropped to fit the budget.
    Budget,
    /// Newer messages fill the content that one context reads.
    ContentLimit,
    /// It holds a tool result without a call.
    ResultWithoutCall,
    /// It has no content that can be sent.
    Empty,
    /// It is an oversized tool result, and a model has refused the context as too long.
    Pressure,
    /// The user sent the same message again directly after it. It is sent once.
    Repeated,
}

/// Consecutive messages with one representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The first message.
    pub first: MessageId,
    /// The last message.
    pub last: MessageId,
    /// How they are represented.
    pub representation: Representation,
    /// Why they are represented so.
    pub reason: Reason,
    /// Tokens that they take in the context, without framing.
    pub tokens: Tokens,
    /// Tokens of the originals; zero if they were not read.
    pub original_tokens: Tokens,
    /// Whether the message is cool. Set for messages of the tail only.
    pub cool: bool,
    /// Byte ranges of the message's plain text that a clip left out.
    pub clipped: Vec<std::ops::Range<usize>>,
}

/// A change that makes the context acceptable to the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The kind of change.
    pub kind: RepairKind,
    /// The stored message that was changed; None for current input.
    pub message: Option<MessageId>,
    /// The id of the tool call that was changed; empty if there is none.
    pub call: String,
}

/// Kinds of repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// The message was merged into the one before, which has the same role.
    Merged,
    /// A call got a synthetic result.
    ResultAdded,
    /// A result without a call was dropped.
    ResultDropped,
    /// A message without content was dropped.
    EmptyDropped,
    /// A late result was moved up to its call.
    ResultMoved,
    /// A user message that was sent again after a failed turn is sent once.
    RepeatFolded,
    /// A user message was added where the provider requires one: at the start, or at the end.
    UserAdded,
    /// An application's instruction got the role user and a mark that identifies it.
    RoleChanged,
    /// A call and its result got an id that the provider accepts.
    IdChanged,
    /// A call's input that is no JSON object was wrapped in one.
    InputWrapped,
    /// Reasoning that the provider does not accept was dropped.
    ReasoningDropped,
    /// Media that the provider does not accept were described in words.
    MediaDescribed,
    /// A tool got a name that the provider accepts.
    NameChanged,
    /// A failed result without text got one.
    TextAdded,
}

/// A built context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The messages in the order to send.
    pub messages: Vec<ContextMessage>,
    /// One entry for each id from 1 to the newest, or for a run of ids, in id order.
    pub manifest: Vec<ManifestEntry>,
    /// The changes that make the context acceptable to the provider.
    pub repairs: Vec<Repair>,
    /// Tokens of `messages` with framing. An upper bound where messages were merged.
    pub total: Tokens,
    /// Whether `total` includes an estimate.
    pub estimated: bool,
    /// The newest message of the conversation.
    pub last_message_id: MessageId,
    /// The boundary that the context starts after.
    pub boundary: Boundary,
    /// The turn from which the age of messages is measured.
    pub current_turn: i32,
    /// How the beginning compares with that of the previous context.
    pub prefix: Prefix,
}

/// The budget is smaller than what must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a budget of {budget} tokens cannot hold the system prompt ({system_prompt}) and the newest message (at least {newest})"
)]
pub struct BudgetTooSmall {
    /// The requested budget.
    pub budget: Tokens,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
    /// Tokens of what else must be sent, clipped as far as possible: the newest message and the
    /// checkpoint's summary.
    pub newest: Tokens,
}
