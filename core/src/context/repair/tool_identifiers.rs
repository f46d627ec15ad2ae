//! Tool names and call ids that providers accept. An identifier that a provider refuses is replaced
//! by one that it accepts. Each build of the same messages makes the same identifiers.

use std::collections::{HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use crate::{
    context::{Draft, RepairKind},
    message::{MessageId, Part, Role},
    provider_format::Format,
};

/// Longest tool name that OpenAI, Anthropic and Gemini accept, and longest call id that Anthropic
/// accepts. It applies to stored calls when a context is built for a format. For the tools that are
/// offered to a model, `llm/src/provider/tool.rs` has the rule.
const MAX_NAME_BYTES: usize = 64;
/// Longest call id that OpenAI accepts, in characters.
const OPENAI_MAX_ID_CHARACTERS: usize = 40;
/// Hexadecimal digits of the digest at the end of a sanitized identifier.
const DIGEST_DIGITS: usize = 10;

/// Whether the provider accepts this tool name.
pub(super) fn is_valid_name(name: &str, format: Format) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let has_valid_length = (1..=MAX_NAME_BYTES).contains(&name.len());
    match format {
        Format::Neutral => true,
        Format::OpenAiChat | Format::AnthropicMessages => {
            has_valid_length && name.bytes().all(is_plain)
        }
        Format::GeminiContents => {
            let valid_start = name
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
            has_valid_length
                && valid_start
                && name
                    .bytes()
                    .all(|byte| is_plain(byte) || byte == b'.' || byte == b':')
        }
    }
}

/// A name that the provider accepts, derived from one that it refuses.
pub(super) fn valid_name(name: &str, format: Format) -> String {
    let sanitized = sanitized_text(name, 0, MAX_NAME_BYTES);
    if is_valid_name(&sanitized, format) {
        sanitized
    } else {
        sanitized_text(&["_", name].concat(), 0, MAX_NAME_BYTES)
    }
}

/// Whether the provider accepts this call id. Gemini receives no ids: it matches results to calls
/// by name and order.
fn is_valid_id(id: &str, format: Format) -> bool {
    match format {
        Format::Neutral | Format::GeminiContents => true,
        Format::OpenAiChat => (1..=OPENAI_MAX_ID_CHARACTERS).contains(&id.chars().count()),
        Format::AnthropicMessages => is_valid_name(id, format),
    }
}

/// The text with special characters replaced by `_`, in at most `max_bytes` bytes. It ends in `_`
/// and a digest of the text and `nth`, so that different inputs give different results. `nth`: how
/// many other forms of the text have been tried before.
fn sanitized_text(text: &str, nth: usize, max_bytes: usize) -> String {
    // Each character that is kept or replaced has one byte.
    let kept_characters = max_bytes - DIGEST_DIGITS - 1;
    let replace_special = |char: char| {
        if char.is_ascii_alphanumeric() || char == '-' {
            char
        } else {
            '_'
        }
    };
    let mut sanitized: String = text
        .chars()
        .take(kept_characters)
        .map(replace_special)
        .collect();
    let digest = Sha256::new()
        .chain_update(nth.to_be_bytes())
        .chain_update(text)
        .finalize();
    sanitized.push('_');
    for digit in digest
        .iter()
        .take(DIGEST_DIGITS / 2)
        .flat_map(|byte| [byte >> 4, byte & 15])
    {
        sanitized.extend(char::from_digit(u32::from(digit), 16));
    }
    sanitized
}

/// Gives every call of the draft an id that the provider accepts and that no other call has. The
/// call's result gets the same id.
pub(super) fn assign_distinct_ids(draft: &mut Draft) {
    let format = draft.format;
    let max_bytes = if format == Format::OpenAiChat {
        OPENAI_MAX_ID_CHARACTERS
    } else {
        MAX_NAME_BYTES
    };
    let mut used: HashSet<String> = HashSet::new();
    let mut tried: HashMap<String, usize> = HashMap::new();
    // Old and new ids of the calls that have no result yet.
    let mut unanswered: Vec<(String, String)> = Vec::new();
    let mut changed: Vec<(Option<MessageId>, String)> = Vec::new();
    for entry in &mut draft.entries {
        if entry.role != Role::Tool {
            unanswered.clear();
        }
        let message = entry.message_id();
        for part in &mut entry.parts {
            match part {
                Part::ToolUse { id, .. } => {
                    let fits = is_valid_id(id, format) && !used.contains(id.as_str());
                    let new_id = if fits {
                        id.clone()
                    } else {
                        unused_id(id, max_bytes, &used, &mut tried)
                    };
                    used.insert(new_id.clone());
                    let old_id = std::mem::replace(id, new_id.clone());
                    if !fits {
                        changed.push((message, old_id.clone()));
                    }
                    unanswered.push((old_id, new_id));
                }
                Part::ToolResult { id, .. } => {
                    if let Some(index) = unanswered.iter().position(|(old_id, _)| old_id == id) {
                        *id = unanswered.remove(index).1;
                    }
                }
                Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => {}
            }
        }
    }
    if format != Format::GeminiContents {
        for (message, call) in changed {
            draft.report_repair(RepairKind::IdChanged, message, call);
        }
    }
}

/// The first sanitized form of the id that no call has yet. `tried` holds for each id how many
/// forms have been tried, so that they are not tried again when every turn uses the same id.
fn unused_id(
    id: &str,
    max_bytes: usize,
    used: &HashSet<String>,
    tried: &mut HashMap<String, usize>,
) -> String {
    let nth = tried.entry(id.to_owned()).or_default();
    loop {
        let candidate = sanitized_text(id, *nth, max_bytes);
        *nth += 1;
        if !used.contains(&candidate) {
            return candidate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitized_name_is_valid_and_distinct() {
        let odd = [
            "call_X|fc_Y",
            "call_X fc_Y",
            "",
            "é",
            "9:lives",
            "a.b",
            &"x".repeat(65),
            &"x".repeat(66),
        ];
        for format in [
            Format::OpenAiChat,
            Format::AnthropicMessages,
            Format::GeminiContents,
        ] {
            let sanitized: HashSet<String> =
                odd.iter().map(|name| valid_name(name, format)).collect();
            assert_eq!(sanitized.len(), odd.len());
            assert!(
                sanitized.iter().all(|name| is_valid_name(name, format)),
                "{sanitized:?}"
            );
        }
        assert!(
            is_valid_name("a.b:c", Format::GeminiContents)
                && !is_valid_name("9a", Format::GeminiContents)
        );
        assert!(
            is_valid_name("9a", Format::AnthropicMessages)
                && !is_valid_name("a.b", Format::OpenAiChat)
        );
    }
}
