//! The input of a build: what the store read of the conversation, and what the caller asks for.

use super::PrefixVersion;
use crate::{
    cache::CacheAsk,
    media_access::MediaAccess,
    message::{Message, MessageId, Part, Role, ToolMark},
    policy::Policy,
    provider_format::Format,
    tokens::{Encoding, Tokens},
};

/// The rows of a conversation that its context is built from, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Material {
    /// The newest message of the conversation, withdrawn ones included.
    pub last_message_id: MessageId,
    /// The role of the newest message that is not withdrawn; None if there is none.
    pub last_role: Option<Role>,
    /// The turn of the newest message that is not withdrawn.
    pub turn: i32,
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// The settings in force for the conversation.
    pub policy: Policy,
    /// The conversation's system prompt; empty if it has none.
    pub system_prompt: String,
    /// Tokens of the system prompt.
    pub system_prompt_tokens: Tokens,
    /// The message that the last separator follows; None if there is no separator.
    pub separator: Option<MessageId>,
    /// The newest valid checkpoint.
    pub checkpoint: Option<CheckpointSummary>,
    /// The messages after the boundary that were read, in id order.
    pub tail: Vec<TailMessage>,
    /// The messages after the boundary that were not read, in id order, because newer ones fill the
    /// content limit. Empty for nearly every conversation.
    pub omitted: Vec<OmittedMessage>,
    /// The messages after the boundary that are withdrawn or erased, in id order. Nothing of them
    /// is sent. Empty for nearly every conversation.
    pub withdrawn: Vec<MessageId>,
    /// The newest recorded version of the context's beginning; None if none is recorded.
    pub prefix: Option<PrefixVersion>,
    /// Seconds since the last model call began, which is when the provider last used its cache:
    /// since the message before the newest assistant message of the tail was stored; None if the
    /// tail has no assistant message. Withdrawn messages count: the call that wrote one has used
    /// the cache.
    pub idle_seconds: Option<i64>,
    /// The provider's tokens for each token counted here, from the model's usage reports; None
    /// without a report.
    pub tokens_ratio: Option<f64>,
    /// The window that the model's provider named in an error; None if it named none.
    pub learnt_window: Option<Tokens>,
    /// Number of the newest change that watchers see: of a summary, a checkpoint or messages.
    pub change_id: i64,
}

/// The summary of everything up to the boundary.
#[derive(Debug, Clone)]
pub struct CheckpointSummary {
    /// The last message that the summary covers.
    pub last: MessageId,
    /// The summary.
    pub text: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
    /// Tokens that the summary saves in a context.
    pub saved: Tokens,
    /// Whether the summary belongs to a stored checkpoint.
    pub origin: SummaryOrigin,
}

/// The origin of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SummaryOrigin {
    /// The summary belongs to a stored checkpoint.
    #[default]
    Stored,
    /// The summary is made for this answer only, because a model has refused a longer context.
    ForThisCall,
}

/// One message after the boundary.
#[derive(Debug, Clone)]
pub struct TailMessage {
    /// Its id.
    pub id: MessageId,
    /// Author of the message.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Tokens of the original: counted, or estimated until they are counted.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// The content that was read.
    pub body: Body,
    /// With stepped cooling, the summary of a large message whose original was read: the next step
    /// may send it in place of the original.
    pub ready_summary: Option<ReadySummary>,
}

/// One message after the boundary that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OmittedMessage {
    /// Its id.
    pub id: MessageId,
    /// Its turn.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
}

/// A summary that may replace a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadySummary {
    /// The summary.
    pub text: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
}

/// The content that the store read of a message.
#[derive(Debug, Clone)]
pub enum Body {
    /// The original.
    Original(Vec<Part>),
    /// The summary of a cool large message. Its original was not read.
    Summary {
        /// The summary.
        text: String,
        /// Tokens of the summary.
        tokens: Tokens,
        /// Bytes of the original's plain text.
        original_bytes: u64,
        /// Its tool calls and results, which stay in their places.
        outline: Vec<ToolMark>,
    },
}

/// The caller's request.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Messages that are not stored yet. They end the context.
    pub current_input: Vec<Message>,
    /// Replaces the conversation's system prompt; None keeps it.
    pub system_prompt: Option<String>,
    /// Most tokens of the whole context; None: no limit.
    pub budget: Option<Tokens>,
    /// The format that the context will be rendered in. Content that the provider refuses is
    /// repaired.
    pub format: Format,
    /// Media that may be sent by their address. Other media are described in words.
    pub media: MediaAccess,
    /// The measures to take after a model refused the context as too long.
    pub pressure: Pressure,
    /// The provider's cache. None: nothing is marked, and an ideal cache is expected.
    pub cache: Option<CacheAsk>,
}

/// Measures after a model has refused a context as too long. They apply with and without a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pressure {
    /// No measure.
    #[default]
    None,
    /// Clip every oversized tool result, in the newest turn too.
    TruncateToolResults,
    /// Clip as [`Self::TruncateToolResults`] does. The compaction itself runs before the build.
    Compact,
}
