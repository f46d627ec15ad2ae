//! The output of a build: the messages to send, the repairs, and a manifest. The manifest says how
//! each message of the conversation is represented in the context.

use super::Prefix;
use crate::{
    boundary::Boundary,
    cache::{CacheMark, CacheTtl},
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
    /// The original is sent, unchanged.
    Original,
    /// The message's own summary is sent.
    Summary,
    /// The checkpoint's summary is sent.
    Checkpoint,
    /// Not sent: it is before the last separator.
    BeforeSeparator,
    /// The original is sent without the middle of its text.
    Clipped,
    /// Not sent, because of the budget or because newer messages fill the content limit.
    Dropped,
    /// Not sent, whole or in part: the provider would refuse it, or a later message repeats it.
    Repaired,
    /// Not sent: it is withdrawn or erased.
    Withdrawn,
}

/// Why messages have their representation. `cooling` says when a message is large, and when it is
/// cool. A message that is not cool is hot.
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
    /// Newer messages fill the content limit: one context reads no more content.
    ContentLimit,
    /// It holds a tool result without a call, or a second result of one call.
    ResultWithoutCall,
    /// It has no content that can be sent.
    Empty,
    /// A model has refused the context as too long. So an oversized tool result was clipped, or a
    /// summary made for this call covers the message.
    Pressure,
    /// The user sent the same message again, with nothing but empty answers in between. Only the
    /// last of these messages is sent.
    Repeated,
    /// It is withdrawn or erased. Only messages of the tail have this reason: before the boundary,
    /// withdrawn messages belong to the run of the checkpoint or of the separator.
    Withdrawn,
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
    /// Tokens of the originals; zero for messages before the boundary.
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
    /// The stored message that was changed, or whose call got an added result; None for current
    /// input and for added user messages.
    pub message: Option<MessageId>,
    /// The id of the tool call that was changed; empty if there is none.
    pub call: String,
}

/// Kinds of repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// The message was merged into the one before, which has the same role in the provider's
    /// format.
    Merged,
    /// A call got a synthetic result.
    ResultAdded,
    /// A result without a call, or a second result of one call, was dropped.
    ResultDropped,
    /// A message without content was dropped.
    EmptyDropped,
    /// A late result was moved up to its call.
    ResultMoved,
    /// A user message repeats the one before it. The earlier one is left out.
    RepeatFolded,
    /// A user message was added at the start or at the end, where the provider requires one.
    UserAdded,
    /// An application's instruction got the role user, and a text before it that says what it is.
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
    /// A failed result without text got a text.
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
    /// Tokens of `messages` with framing: an upper bound if messages were merged.
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
    /// The places up to which the provider is asked to cache, in order.
    pub marks: Vec<CacheMark>,
    /// How long the provider is asked to cache the declared tools; None: they are not marked. They
    /// are only marked if there is no system prompt behind them.
    pub tools_ttl: Option<CacheTtl>,
}

/// The budget is smaller than what must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a budget of {budget} tokens cannot hold the system prompt ({system_prompt}) and the newest \
     message, with the checkpoint's summary if there is one (at least {newest})"
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
