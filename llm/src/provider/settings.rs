//! The operator's settings for providers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// OpenAI's Chat Completions, and compatible servers: vLLM, llama.cpp, Ollama, LM Studio.
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
    /// Gemini's generateContent.
    Gemini,
}

/// The field of the output limit in OpenAI's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputField {
    /// The name that most servers accept.
    MaxTokens,
    /// The name that OpenAI requires, and servers that host its newer models.
    MaxCompletionTokens,
}

impl OutputField {
    /// The field's name in a request.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Whether requests ask for the provider's prompt cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptCache {
    /// At the protocol's own host; with Anthropic's protocol at any host.
    #[default]
    Auto,
    /// At any host, which then has the cache of the protocol's own.
    On,
    /// Never.
    None,
}

/// The media whose addresses a provider may receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "media must be \"inline\", \"https\", or a list of hosts"
)]
pub enum MediaSettings {
    /// No addresses, or the `https` addresses of all public hosts.
    Rule(MediaRule),
    /// Addresses on these hosts.
    Hosts(Vec<String>),
}

/// A rule for media addresses without a list of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaRule {
    /// No addresses: only media in a `data:` URI.
    Inline,
    /// `https` addresses whose host is a public name.
    Https,
}

/// One provider. The key itself is never part of the settings, only the variable or file that holds
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The protocol.
    pub api: Api,
    /// Base URL of its API, for example `https://api.openai.com/v1`; None: the protocol's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// The file that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// The field of the output limit; None: `max_completion_tokens` at OpenAI's own host,
    /// `max_tokens` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_field: Option<OutputField>,
    /// Whether requests ask for its prompt cache.
    #[serde(default)]
    pub prompt_cache: PromptCache,
    /// The media whose addresses the provider may receive; None: `https` at the protocol's own
    /// host, `inline` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaSettings>,
    /// Allows plain HTTP to a host that is not this machine.
    #[serde(default)]
    pub allow_http: bool,
    /// URL of a proxy; None: no proxy, also if the environment names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Most milliseconds to connect.
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u32,
    /// Most milliseconds until the answer begins, and between two chunks of it.
    #[serde(default = "first_byte_timeout_ms")]
    pub first_byte_timeout_ms: u32,
    /// Most milliseconds of the whole call.
    #[serde(default = "total_timeout_ms")]
    pub total_timeout_ms: u32,
    /// Most bytes of an answer.
    #[serde(default = "response_bytes")]
    pub response_bytes: u32,
}

const fn connect_timeout_ms() -> u32 {
    5_000
}

const fn first_byte_timeout_ms() -> u32 {
    60_000
}

const fn total_timeout_ms() -> u32 {
    300_000
}

const fn response_bytes() -> u32 {
    16 * 1024 * 1024
}

/// The providers, by name.
pub type Providers = BTreeMap<String, ProviderSettings>;

/// An invalid configuration; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);
