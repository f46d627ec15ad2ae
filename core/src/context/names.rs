//! Names and call ids as providers take them: what they refuse is mapped to what they take, always to the same.

use std::collections::{HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use super::{Draft, RepairKind};
use crate::{
    message::{MessageId, Part, Role},
    render::Format,
};

/// Longest tool name that OpenAI, Anthropic and Gemini take; Anthropic's longest call id.
const MOST_BYTES: usize = 64;
/// Longest call id that OpenAI takes.
const OPENAI_ID_BYTES: usize = 40;
/// Hexadecimal digits of the digest that a mapped name ends with.
const DIGITS: usize = 10;

/// Whether the provider takes this as a tool's name.
pub(super) fn is_name(name: &str, format: Format) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let sized = (1..=MOST_BYTES).contains(&name.len());
    match format {
        Format::Neutral => true,
        Format::OpenAiChat | Format::AnthropicMessages => sized && name.bytes().all(plain),
        Format::GeminiContents => {
            let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
            sized && first && name.bytes().all(|byte| plain(byte) || byte == b'.' || byte == b':')
        }
    }
}

/// What the provider gets for a name that it does not take.
pub(super) fn name(name: &str, format: Format) -> String {
    let mapped = mapped(name, 0, MOST_BYTES);
    if is_name(&mapped, format) { mapped } else { self::mapped(&["_", name].concat(), 0, MOST_BYTES) }
}

/// Whether the provider takes this as a call's id. Gemini gets no ids: it goes by names and order.
fn is_id(id: &str, format: Format) -> bool {
    match format {
        Format::Neutral | Format::GeminiContents => true,
        Format::OpenAiChat => (1..=OPENAI_ID_BYTES).contains(&id.chars().count()),
        Format::AnthropicMessages => is_name(id, format),
    }
}

/// The text with everything odd replaced, and a digest of it and of `nth` at its end, so that no two become one.
fn mapped(text: &str, nth: usize, most: usize) -> String {
    let kept = most - DIGITS - 1;
    let plain = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    let mut mapped: String = text.chars().take(kept).map(plain).collect();
    let digest = Sha256::new().chain_update(nth.to_be_bytes()).chain_update(text).finalize();
    mapped.push('_');
    for half in digest.iter().take(DIGITS / 2).flat_map(|byte| [byte >> 4, byte & 15]) {
        mapped.extend(char::from_digit(u32::from(half), 16));
    }
    mapped
}

/// Gives every call of the draft an id that the provider takes and that no other call has; its result gets the same.
pub(super) fn distinct_ids(draft: &mut Draft) {
    let format = draft.format;
    let most = if format == Format::OpenAiChat { OPENAI_ID_BYTES } else { MOST_BYTES };
    let mut used: HashSet<String> = HashSet::new();
    let mut tried: HashMap<String, usize> = HashMap::new();
    let mut asked: Vec<(String, String)> = Vec::new();
    let mut changed: Vec<(Option<MessageId>, String)> = Vec::new();
    for entry in &mut draft.entries {
        if entry.role != Role::Tool {
            asked.clear();
        }
        let message = entry.message();
        for part in &mut entry.parts {
            match part {
                Part::ToolUse { id, .. } => {
                    let fits = is_id(id, format) && !used.contains(id.as_str());
                    let given = if fits { id.clone() } else { unused(id, most, &used, &mut tried) };
                    used.insert(given.clone());
                    let old = std::mem::replace(id, given.clone());
                    if !fits {
                        changed.push((message, old.clone()));
                    }
                    asked.push((old, given));
                }
                Part::ToolResult { id, .. } => {
                    if let Some(place) = asked.iter().position(|(old, _)| old == id) {
                        *id = asked.remove(place).1;
                    }
                }
                Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => {}
            }
        }
    }
    if format != Format::GeminiContents {
        for (message, call) in changed {
            draft.repair(RepairKind::IdChanged, message, call);
        }
    }
}

/// The first mapping of the id that no call has yet. `tried` remembers how far each id has come: the same id in every turn
/// must not be tried from the start each time.
fn unused(id: &str, most: usize, used: &HashSet<String>, tried: &mut HashMap<String, usize>) -> String {
    let nth = tried.entry(id.to_owned()).or_default();
    loop {
        let candidate = mapped(id, *nth, most);
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
    fn a_mapped_name_is_one_that_the_provider_takes_and_never_another_ones() {
        let odd = ["call_X|fc_Y", "call_X fc_Y", "", "é", "9:lives", "a.b", &"x".repeat(65), &"x".repeat(66)];
        for format in [Format::OpenAiChat, Format::AnthropicMessages, Format::GeminiContents] {
            let mapped: HashSet<String> = odd.iter().map(|odd| name(odd, format)).collect();
            assert_eq!(mapped.len(), odd.len());
            assert!(mapped.iter().all(|name| is_name(name, format)), "{mapped:?}");
        }
        assert!(is_name("a.b:c", Format::GeminiContents) && !is_name("9a", Format::GeminiContents));
        assert!(is_name("9a", Format::AnthropicMessages) && !is_name("a.b", Format::OpenAiChat));
    }
}
