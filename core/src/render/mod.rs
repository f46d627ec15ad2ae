//! Renders a context as one JSON object that a provider accepts. One file for each format:
//! `anthropic`, `gemini`, `openai`, and `neutral`, which has roles and parts as they are stored.
//!
//! Build the context with the same format in its [`Ask`](crate::context::Ask): content that a
//! provider refuses is repaired there, where it is counted and reported. Rendering changes only the
//! form, and copies content only into the output.

mod anthropic;
mod gemini;
mod neutral;
mod openai;
#[cfg(test)]
mod tests;

pub use crate::provider_format::{BlockedMedia, Format, find_blocked_media};

use serde::Serialize;

use crate::context::Context;

/// The context as one JSON object, without the system keys if there is no system prompt.
pub fn render(context: &Context, format: Format) -> String {
    match format {
        Format::Neutral => to_json(&neutral::request(context), context),
        Format::OpenAiChat => to_json(&openai::request(context), context),
        Format::AnthropicMessages => to_json(&anthropic::request(context), context),
        Format::GeminiContents => to_json(&gemini::request(context), context),
    }
}

/// A high estimate of the bytes of one token, so that the output buffer seldom grows.
const BYTES_PER_TOKEN: u64 = 5;

fn to_json(request: &impl Serialize, context: &Context) -> String {
    let capacity = context
        .total
        .get()
        .saturating_mul(BYTES_PER_TOKEN)
        .min(64 * 1024 * 1024) as usize;
    let mut json = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut json, request)
        .expect("strings and numbers in structs always serialise into memory");
    String::from_utf8(json).expect("serde_json writes UTF-8")
}
