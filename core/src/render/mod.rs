//! A context as a provider takes it: one JSON object, ready to send.
//!
//! Build the context with the same format in its [`Ask`](crate::context::Ask): what a provider refuses is mended there,
//! where it is counted and reported. Here only the shape changes, and no content is copied but into the answer.

mod anthropic;
mod gemini;
pub(crate) mod json;
pub(crate) mod media;
mod neutral;
mod openai;
#[cfg(test)]
mod tests;

pub use media::{Withheld, find_withheld};
use serde::Serialize;

use crate::context::Context;

/// Whose request a context is shaped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Nobody's: messages and parts as they are stored.
    #[default]
    Neutral,
    /// OpenAI's chat completions, and the many servers that take the same: `{"messages": […]}`.
    OpenAiChat,
    /// Anthropic's messages: `{"system": […], "messages": […]}`.
    AnthropicMessages,
    /// Gemini's generateContent: `{"systemInstruction": {…}, "contents": […]}`.
    GeminiContents,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Neutral, Self::OpenAiChat, Self::AnthropicMessages, Self::GeminiContents];

    /// The format's name in flags, logs and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::OpenAiChat => "openai_chat",
            Self::AnthropicMessages => "anthropic_messages",
            Self::GeminiContents => "gemini_contents",
        }
    }

    /// Whether the conversation must alternate between user and model, beginning and ending with the user.
    pub(crate) const fn alternates(self) -> bool {
        matches!(self, Self::AnthropicMessages | Self::GeminiContents)
    }
}

/// The context as one JSON object. System keys are left out when there is no system prompt.
pub fn render(context: &Context, format: Format) -> String {
    match format {
        Format::Neutral => written(&neutral::request(context), context),
        Format::OpenAiChat => written(&openai::request(context), context),
        Format::AnthropicMessages => written(&anthropic::request(context), context),
        Format::GeminiContents => written(&gemini::request(context), context),
    }
}

/// Bytes of text to a token, generously: the answer's buffer then seldom grows.
const BYTES_PER_TOKEN: u64 = 5;

fn written(request: &impl Serialize, context: &Context) -> String {
    let room = context.total.get().saturating_mul(BYTES_PER_TOKEN).min(64 * 1024 * 1024) as usize;
    let mut json = Vec::with_capacity(room);
    serde_json::to_writer(&mut json, request).expect("strings and numbers in structs always serialise into memory");
    String::from_utf8(json).expect("serde_json writes UTF-8")
}
