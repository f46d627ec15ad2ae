//! What an operator says of providers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The protocol that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// OpenAI's chat completions, and everything compatible with it: vLLM, llama.cpp, Ollama, LM Studio.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's generateContent.
    Gemini,
}

/// The field in which a server of OpenAI's protocol takes the room for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputField {
    /// What most servers take.
    MaxTokens,
    /// What OpenAI's own, and those that host its newer models, ask for.
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

/// Which media a provider is told the addresses of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "media must be \"inline\", \"https\", or a list of hosts")]
pub enum MediaSettings {
    /// None, or all that are public.
    Rule(MediaRule),
    /// Those of these hosts.
    Hosts(Vec<String>),
}

/// Which media go out by their address, without a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaRule {
    /// None: only what lies in a `data:` URI.
    Inline,
    /// Those at `https` whose host is a public name.
    Https,
}

/// One provider: where it is and how it is called. Keys are named, never written here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The protocol.
    pub api: Api,
    /// Where its API begins, for example `https://api.openai.com/v1`; None: the protocol's own home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// The file that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// The field that takes the room for the answer; None: by the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_field: Option<OutputField>,
    /// Which media it is told the addresses of; None: `https` at the protocol's own home, `inline` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaSettings>,
    /// Allow plain HTTP to a host that is not this machine.
    #[serde(default)]
    pub allow_http: bool,
    /// The proxy to go through; None: straight, whatever the environment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Milliseconds to connect.
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u32,
    /// Milliseconds until the answer begins, and between two pieces of it.
    #[serde(default = "first_byte_timeout_ms")]
    pub first_byte_timeout_ms: u32,
    /// Milliseconds for the whole call.
    #[serde(default = "total_timeout_ms")]
    pub total_timeout_ms: u32,
    /// Bytes of an answer at most.
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

/// A configuration that cannot work; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);
