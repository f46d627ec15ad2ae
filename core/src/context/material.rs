//! What a context is built from: what the store knows, and what the caller asks for.

use super::PrefixVersion;
use crate::{
    media_access::MediaAccess,
    message::{Message, MessageId, Part, Role, ToolMark},
    policy::Policy,
    render::Format,
    tokens::{Encoding, Tokens},
};

/// What the store knows of a conversation, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Material {
    /// The newest message.
    pub last_message_id: MessageId,
    /// Its role; None in an empty conversation.
    pub last_role: Option<Role>,
    /// Its turn.
    pub turn: i32,
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// The settings in force.
    pub policy: Policy,
    /// The conversation's system prompt; empty for none.
    pub system_prompt: String,
    /// Its tokens.
    pub system_prompt_tokens: Tokens,
    /// The last separator's place, if there is a separator.
    pub separator: Option<MessageId>,
    /// The newest checkpoint that holds.
    pub checkpoint: Option<CheckpointSummary>,
    /// The messages after the boundary that were read, in id order.
    pub tail: Vec<TailMessage>,
    /// Those that were not, in id order: what is newer holds as much as one context reads. Empty in nearly all.
    pub left_out: Vec<LeftOut>,
    /// The newest recorded version of the context's beginning.
    pub prefix: Option<PrefixVersion>,
    /// Seconds since the newest assistant message of the tail was stored: the age of the last model call.
    pub idle_seconds: Option<i64>,
    /// The provider's tokens for each token counted here, as usage reports of the model say; None: no report.
    pub tokens_ratio: Option<f64>,
    /// The window that the model's provider has named; None: it never had to.
    pub learnt_window: Option<Tokens>,
}

/// The summary that stands for everything up to the boundary.
#[derive(Debug, Clone)]
pub struct CheckpointSummary {
    /// The last message covered.
    pub last: MessageId,
    /// The summary.
    pub text: String,
    /// Its tokens.
    pub tokens: Tokens,
    /// Tokens that a context has saved by it.
    pub saved: Tokens,
    /// Whether it is stored.
    pub made: Made,
}

/// Where a summary comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Made {
    /// It is a stored checkpoint's.
    #[default]
    Stored,
    /// It was made for this answer, because a model has refused a longer context.
    ForThisCall,
}

/// One message after the boundary.
#[derive(Debug, Clone)]
pub struct TailMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Tokens of the original: counted, or else estimated.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// What of it was read.
    pub body: Body,
    /// Its summary, where it is large and is still sent as it was said.
    pub ready: Option<ReadySummary>,
}

/// One message after the boundary that was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// Its id.
    pub id: MessageId,
    /// Its turn.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
}

/// A summary that may take a message's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadySummary {
    /// The summary.
    pub text: String,
    /// Its tokens.
    pub tokens: Tokens,
}

/// What the store read of a message.
#[derive(Debug, Clone)]
pub enum Body {
    /// The original.
    Original(Vec<Part>),
    /// The summary of a cool large message; its original was not read.
    Summary {
        /// The summary.
        text: String,
        /// Its tokens.
        tokens: Tokens,
        /// Bytes of the original's plain text.
        original_bytes: u64,
        /// Its tool calls and results, which must stay in their places.
        outline: Vec<ToolMark>,
    },
}

/// What the caller asks for.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Messages that are not stored yet and end the context.
    pub current_input: Vec<Message>,
    /// Sent instead of the conversation's system prompt.
    pub system_prompt: Option<String>,
    /// The whole context counts at most this.
    pub budget: Option<Tokens>,
    /// What it will be rendered as: what that provider refuses is mended.
    pub format: Format,
    /// Which media may be sent by their address; the others are described.
    pub media: MediaAccess,
    /// What a model refused before.
    pub pressure: Pressure,
}

/// What is done because a model has refused a context as too long, whether or not there is a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pressure {
    /// Nothing.
    #[default]
    None,
    /// Every oversized tool result is clipped, those of the newest turn included.
    TruncateToolResults,
    /// The same; the compaction itself comes before the build.
    Compact,
}
