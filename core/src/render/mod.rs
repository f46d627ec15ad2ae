//! Renders a context as one JSON object that a provider accepts. One file for each format:
//! `anthropic`, `gemini`, `openai`, and `neutral`, which has roles and parts as they are stored.
//!
//! The context must have been built for the same format ([`Ask`](crate::context::Ask)): the build
//! repairs content that the provider refuses, counts it and reports it. Rendering changes only the
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

/// The context as one JSON object. Without a system prompt, its key or message is absent.
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

/// Most bytes that are reserved for the output in advance.
const MAX_RESERVED_BYTES: u64 = 64 * 1024 * 1024;

fn to_json(request: &impl Serialize, context: &Context) -> String {
    let capacity = context
        .total
        .get()
        .saturating_mul(BYTES_PER_TOKEN)
        .min(MAX_RESERVED_BYTES) as usize;
    let mut json = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut json, request)
        .expect("strings and numbers in structs always serialize into memory");
    String::from_utf8(json).expect("serde_json writes UTF-8")
}
