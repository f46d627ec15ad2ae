//! Language models behind their providers: named in the operator's configuration, called over HTTP, read with suspicion.
//! What a provider answers is data of a stranger: bounded in bytes and time, and never trusted to be what it says.

mod answer;
mod anthropic;
mod body;
mod callable;
mod failure;
mod figures;
mod gemini;
mod http;
mod json;
mod key;
mod model;
mod openai;
mod pieces;
mod request;
mod settings;
mod tool;

use anneal_core::tokens::Tokens;

pub use anneal_core::admission::Closed;
pub use callable::CallableModels;
pub use failure::CallFailure;
pub use figures::{CallCost, CallFigures};
pub use model::Model;
pub use pieces::{BilledPieces, Pieces};
pub use settings::{Api, MediaRule, MediaSettings, OutputField, ProviderSettings, Providers, SettingsError};
pub use tool::{Tool, ToolError};

/// One call of a model.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The context, rendered in the model's [`Model::format`]: one JSON object with the messages and the system prompt.
    pub context: &'a str,
    /// Tools that the model may call.
    pub tools: &'a [Tool],
    /// Room for the answer, at most.
    pub output: Tokens,
    /// Randomness, 0 to 2; None: the provider's default.
    pub temperature: Option<f32>,
    /// Tokens of the request, estimated: what its input costs where the provider does not say.
    pub input: Tokens,
    /// Tokens that the context has at least in the model's own counting, as far as known: tells a prompt that was cut short in silence.
    pub sent_tokens: Option<Tokens>,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// More text.
    Text(String),
    /// More readable thoughts.
    Thought(String),
    /// Thoughts that are complete and signed by the provider, or hidden by it: as they are to be stored and sent back. What
    /// of them can be read came as [`Piece::Thought`] before.
    Reasoning(anneal_core::message::Part),
    /// A call of a tool, complete.
    ToolUse {
        /// The call's id; made here where the provider gives none.
        id: String,
        /// The tool's name.
        name: String,
        /// Its input: JSON text as the model wrote it.
        input: String,
    },
    /// The end, always last.
    End(End),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Why the model stopped.
    pub stop: StopReason,
    /// What the provider counted; zeros where it did not say.
    pub usage: CallUsage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It had said everything.
    Done,
    /// It waits for tools.
    ToolUse,
    /// It reached its output limit.
    OutputLimit,
    /// The provider's filter stopped it.
    Filtered,
}

/// What the provider counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallUsage {
    /// All input, cached and written included.
    pub input: Tokens,
    /// Of it: read from the cache.
    pub cached: Tokens,
    /// Of it: written to the cache.
    pub written: Tokens,
    /// What the model wrote.
    pub output: Tokens,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// How it ended.
    pub end: End,
}
