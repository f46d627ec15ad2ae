//! Language models: named in the operator's configuration and called over HTTP. A provider's answer
//! is untrusted input: limited in bytes and time, and checked.
//!
//! - `settings`, `callable`, `key`: the configuration, its checks, and the keys.
//! - `model`: a model and its calls; `capability`: the options that it accepts, by what
//!   `known_models` knows of its name.
//! - `request`: the body of a call; `http`: sends it, and reads `Retry-After` of an error;
//!   `call_limits`: its limits of time and bytes.
//! - `reach`: asks a provider whether it answers, without calling a model.
//! - `body`: reads an answer's bytes; `answer_stream`: the answer as pieces.
//! - `openai`, `anthropic`, `gemini`: one protocol each; `partial_answer`: what they have in
//!   common.
//! - `json`: defensive parsing.
//! - `failure`: why there is no answer.
//! - `call_cost`: the tokens of a call.

mod answer_stream;
mod anthropic;
mod body;
mod call_cost;
mod call_limits;
mod callable;
mod capability;
mod failure;
mod gemini;
mod http;
mod json;
mod key;
mod known_models;
mod model;
mod openai;
mod partial_answer;
mod reach;
mod request;
mod settings;

use anneal_core::{cache::CacheTtl, tokens::Tokens};

use crate::provider_error::RequestSize;

pub use anneal_core::{
    admission::AdmissionRefusal,
    chat_options::{ChatOptions, Tool, ToolError},
};
pub use answer_stream::{AnswerStream, BilledAnswerStream};
pub use call_cost::CallCost;
pub use callable::{CallableModels, models_without_cache};
pub use capability::OptionRefusal;
pub use failure::CallFailure;
pub use model::Model;
pub use reach::{Reached, reach};
pub use settings::{
    Api, MediaRule, MediaSettings, OutputField, PromptCache, ProviderSettings, Providers,
    SettingsError,
};

/// One call of a model.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The context in the model's [`Model::format`]: one JSON object with the messages and the
    /// system prompt.
    pub context: &'a str,
    /// How the model answers. Its limit of output is not read: see `output`.
    pub options: &'a ChatOptions,
    /// Output limit.
    pub output: Tokens,
    /// How long the provider keeps the declared tools, if they are marked; None: they are not. Only
    /// Anthropic's protocol has such marks.
    pub mark_tools: Option<CacheTtl>,
    /// Requests with the same key share a cache, where OpenAI's own cache is asked for; None: no key
    /// is sent.
    pub cache_key: Option<&'a str>,
    /// Whether OpenAI's own cache should keep this request for a day, if the model can be cached for
    /// so long.
    pub long_retention: bool,
    /// Estimated tokens of the request: its cost if the provider reports no count. Zero: not known.
    pub input: Tokens,
    /// Fewest tokens that the context may have by the model's tokenizer. A provider that counts far
    /// fewer has truncated the prompt; None: this is not checked.
    pub least_sent_tokens: Option<Tokens>,
    /// A window of the model that is smaller than the configured one, if one is known: its provider
    /// has named it in an error, or a policy has it.
    pub window: Option<Tokens>,
}

impl Call<'_> {
    /// Estimated tokens of the request; None: not known. An error about the length of the request
    /// is compared with them. [`Call::least_sent_tokens`] is no estimate: tools and media are
    /// missing.
    fn sent_tokens(&self) -> Option<u64> {
        Some(self.input.get()).filter(|tokens| *tokens > 0)
    }

    /// The size of the request to a model with this window.
    fn size(&self, configured: Tokens) -> RequestSize {
        let window = self
            .window
            .map_or(configured, |window| window.min(configured));
        RequestSize {
            sent: self.sent_tokens(),
            window: Some(window.get()),
        }
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// More text.
    Text(String),
    /// More of the model's readable thoughts, to be shown while they are written. They are not
    /// stored.
    Thought(String),
    /// Complete thoughts that the provider has signed or hidden, as a reasoning part of a message.
    /// They are stored and sent back to the provider, but not shown: their readable text came as
    /// [`Piece::Thought`] before.
    Reasoning(anneal_core::message::Part),
    /// A complete tool call.
    ToolUse {
        /// The call's id; generated if the provider gives none.
        id: String,
        /// The tool's name.
        name: String,
        /// Its input as the model wrote it: JSON text.
        input: String,
    },
    /// The end, always the last piece.
    End(End),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Why the model stopped.
    pub stop: StopReason,
    /// The provider's counts; zeros where it reported none.
    pub usage: CallUsage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The answer was complete.
    Done,
    /// The model waits for results of tools.
    ToolUse,
    /// The model reached its output limit.
    OutputLimit,
    /// The provider's filter stopped the model.
    Filtered,
}

/// The provider's token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallUsage {
    /// All input, including the tokens read from the cache and written to it.
    pub input: Tokens,
    /// The part of the input that was read from the cache.
    pub cached: Tokens,
    /// The part of the input that was written to the cache.
    pub written: Tokens,
    /// Of `written`: written to a cache of an hour.
    pub long_written: Tokens,
    /// All output, thoughts included.
    pub output: Tokens,
    /// The part of the output that is thoughts. Zero: there are none, or the provider does not say.
    pub reasoning: Tokens,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text of the answer.
    pub text: String,
    /// Why the answer ended, and its usage.
    pub end: End,
}
