//! Tokens that a format adds to tool results.

use std::collections::HashMap;

use crate::{
    context::Draft,
    message::{Part, Role},
    provider_format::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// Adds the tokens that a format needs in addition to a result's parts: OpenAI sends each result as
/// a message of its own, Gemini repeats the tool's name.
pub(super) fn add_result_overhead(draft: &mut Draft) {
    let counter = draft.encoding.counter();
    let mut name_tokens: HashMap<String, Tokens> = HashMap::new();
    for entry in &mut draft.entries {
        for part in &entry.parts {
            match (part, draft.format) {
                (Part::ToolUse { id, name, .. }, Format::GeminiContents) => {
                    name_tokens.insert(id.clone(), counter.count(name));
                }
                (Part::ToolResult { id, .. }, Format::GeminiContents) => {
                    // Since `tool_pairs` ran, each result has its call. For a result without a
                    // call, `render::gemini` would send the name `unknown`. The default is an upper
                    // bound for its tokens.
                    entry.tokens += name_tokens.get(id).copied().unwrap_or(FRAMING_PER_MESSAGE);
                }
                _ => {}
            }
        }
        if entry.role == Role::Tool && draft.format == Format::OpenAiChat {
            entry.framing_count = entry.framing_count.max(entry.parts.len() as u64);
        }
    }
}
