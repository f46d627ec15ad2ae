//! The request formats of providers, and what each of them accepts.
//!
//! - `media`: pictures and files, by type, position and address.
//! - `json`: tool input, and base64.

pub(crate) mod json;
pub(crate) mod media;

pub use media::{BlockedMedia, find_blocked_media};

/// The request format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// No provider's format: messages and parts as they are stored.
    #[default]
    Neutral,
    /// OpenAI's chat completions, which many other servers accept too: `{"messages": […]}`.
    OpenAiChat,
    /// Anthropic's messages: `{"system": […], "messages": […]}`.
    AnthropicMessages,
    /// Gemini's generateContent: `{"systemInstruction": {…}, "contents": […]}`.
    GeminiContents,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [
        Self::Neutral,
        Self::OpenAiChat,
        Self::AnthropicMessages,
        Self::GeminiContents,
    ];

    /// The format's name in flags, logs and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::OpenAiChat => "openai_chat",
            Self::AnthropicMessages => "anthropic_messages",
            Self::GeminiContents => "gemini_contents",
        }
    }

    /// Whether user and model must alternate, with the user first and last.
    pub(crate) const fn alternates(self) -> bool {
        matches!(self, Self::AnthropicMessages | Self::GeminiContents)
    }
}
