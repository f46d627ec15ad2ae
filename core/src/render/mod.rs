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

use std::ops::Range;

use serde::Serialize;

use crate::{
    cache::CacheTtl,
    context::{Context, Segment},
    message::MessageId,
    tokens::Tokens,
};

/// A rendered context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// One JSON object. Without a system prompt, its key or message is absent.
    pub json: String,
    /// The messages of the context in a provider's format, in order. A message that the format
    /// writes as several ones, as OpenAI's results, has a row for each; messages that the format
    /// writes as one have rows with the same index. Empty for the neutral format.
    pub messages: Vec<RenderedMessage>,
    /// For each mark of the context, the index of the message that has it.
    pub mark_indexes: Vec<i32>,
}

/// Where a message of a context stands in its rendered form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedMessage {
    /// Index in the list of messages; -1: the system prompt, which is no message in this format.
    pub index: i32,
    /// The part of the context that it belongs to.
    pub segment: Segment,
    /// The stored messages that it represents.
    pub message_ids: Vec<MessageId>,
    /// Tokens, including the provider's framing. If the message has several rows, the first one has
    /// all of them.
    pub tokens: Tokens,
}

/// Renders the context, with its marks of what the provider should cache.
pub fn render(context: &Context, format: Format) -> Rendered {
    let mut rendered = RenderedMessages::new(context);
    let json = match format {
        Format::Neutral => to_json(&neutral::request(context), context),
        Format::OpenAiChat => to_json(&openai::request(context, &mut rendered), context),
        Format::AnthropicMessages => to_json(&anthropic::request(context, &mut rendered), context),
        Format::GeminiContents => to_json(&gemini::request(context, &mut rendered), context),
    };
    Rendered {
        json,
        messages: rendered.messages,
        mark_indexes: rendered.mark_indexes,
    }
}

/// Records where a format writes the messages of a context.
struct RenderedMessages<'c> {
    context: &'c Context,
    messages: Vec<RenderedMessage>,
    mark_indexes: Vec<i32>,
    /// The message of the last row.
    last: Option<usize>,
}

impl<'c> RenderedMessages<'c> {
    fn new(context: &'c Context) -> Self {
        Self {
            context,
            messages: Vec::with_capacity(context.messages.len()),
            mark_indexes: Vec::with_capacity(context.marks.len()),
            last: None,
        }
    }

    /// Records that the message is in the item `index`.
    fn record(&mut self, message: usize, index: i32) {
        let parts = self.context.messages[message].parts.len();
        self.add(message, 0..parts, index);
    }

    /// Records that the message is in the last of `items` items; nothing if there is none.
    fn record_last(&mut self, message: usize, items: usize) {
        let parts = self.context.messages[message].parts.len();
        self.record_parts(message, 0..parts, items);
    }

    /// Records that these parts of the message are in the last of `items` items; nothing if there
    /// is none.
    fn record_parts(&mut self, message: usize, parts: Range<usize>, items: usize) {
        let index = items
            .checked_sub(1)
            .and_then(|last| i32::try_from(last).ok());
        if let Some(index) = index {
            self.add(message, parts, index);
        }
    }

    fn add(&mut self, message: usize, parts: Range<usize>, index: i32) {
        let source = &self.context.messages[message];
        let is_first = self.last.replace(message) != Some(message);
        self.messages.push(RenderedMessage {
            index,
            segment: source.segment,
            message_ids: source.message_ids.clone(),
            tokens: if is_first {
                source.tokens
            } else {
                Tokens::ZERO
            },
        });
        let points = self.context.marks.iter().map(|mark| mark.point);
        let of_message =
            points.filter(|point| point.message == message && parts.contains(&point.part));
        self.mark_indexes.extend(of_message.map(|_| index));
    }
}

impl Context {
    /// How long the provider is asked to cache up to this part of this message; None: it has no
    /// mark.
    fn mark_at(&self, message: usize, part: usize) -> Option<CacheTtl> {
        let place = (message, part);
        let mark = self
            .marks
            .iter()
            .find(|mark| (mark.point.message, mark.point.part) == place);
        mark.map(|mark| mark.ttl)
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
