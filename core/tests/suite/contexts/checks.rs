//! Checks that hold for the context of any conversation.

use std::collections::HashSet;

use anneal_core::{
    context::{Context, ManifestEntry, Representation, Segment},
    message::{MessageId, Part, Role, part_text},
    render::Format,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens, count_parts},
};
use serde_json::Value;

pub(crate) const ENCODING: Encoding = Encoding::O200kBase;

/// Whether the manifest has every id from 1 to `last` once, in order.
pub(crate) fn covers_every_id(context: &Context, last: MessageId) -> bool {
    let mut next = MessageId(1);
    let in_order = context.manifest.iter().all(|entry| {
        let fits = entry.first == next && entry.last >= entry.first;
        next = entry.last.next();
        fits
    });
    in_order && next == last.next()
}

/// Ids of the stored messages that the budget did not drop.
pub(crate) fn kept_ids(context: &Context) -> HashSet<i64> {
    let kept = |entry: &&ManifestEntry| entry.representation != Representation::Dropped;
    context
        .manifest
        .iter()
        .filter(kept)
        .flat_map(|entry| entry.first.0..=entry.last.0)
        .collect()
}

/// Tokens of the rendered request: its texts, names and inputs, and the framing of its messages.
/// For the neutral format: tokens of the context's messages, media included.
pub(crate) fn count_rendered(rendered: &Value, context: &Context, format: Format) -> Tokens {
    if format == Format::Neutral {
        let tokens_of = |parts: &[Part]| count_parts(ENCODING, parts) + FRAMING_PER_MESSAGE;
        return context
            .messages
            .iter()
            .map(|message| tokens_of(&message.parts))
            .sum();
    }
    let mut tokens = Tokens::ZERO;
    let system = rendered
        .get("system")
        .or_else(|| rendered.get("systemInstruction"));
    tokens += system.map_or(Tokens::ZERO, |_| FRAMING_PER_MESSAGE);
    let messages = rendered
        .get("messages")
        .or_else(|| rendered.get("contents"))
        .and_then(Value::as_array);
    tokens += messages
        .into_iter()
        .flatten()
        .map(|_| FRAMING_PER_MESSAGE)
        .sum();
    let mut texts = Vec::new();
    collect_texts(rendered, &mut texts);
    tokens += texts
        .into_iter()
        .map(|text| ENCODING.counter().count(text))
        .sum();
    let inputs = context
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter(|part| matches!(part, Part::ToolUse { .. }));
    tokens
        + inputs
            .map(|part| ENCODING.counter().count(part_text(part)))
            .sum()
}

/// Collects every string of a request whose tokens count. Types, roles, ids, signatures, addresses
/// and inputs do not count.
fn collect_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    const TEXT_KEYS: [&str; 6] = ["text", "thinking", "name", "content", "result", "error"];
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(entries) => {
            for (key, value) in entries {
                match value {
                    Value::String(text) if TEXT_KEYS.contains(&key.as_str()) => texts.push(text),
                    _ if ["input", "args", "arguments"].contains(&key.as_str()) => {}
                    _ => collect_texts(value, texts),
                }
            }
        }
        _ => {}
    }
}

/// Whether some string of the request contains `wanted`.
pub(crate) fn contains_text(rendered: &Value, wanted: &str) -> bool {
    match rendered {
        Value::String(text) => text.contains(wanted),
        Value::Array(values) => values.iter().any(|value| contains_text(value, wanted)),
        Value::Object(entries) => entries.values().any(|value| contains_text(value, wanted)),
        _ => false,
    }
}

/// Whether every call has exactly one result, directly after it, and there are no other results.
pub(crate) fn context_is_paired(context: &Context) -> bool {
    let mut unanswered: Vec<&str> = Vec::new();
    for message in &context.messages {
        if message.role != Role::Tool && !unanswered.is_empty() {
            return false;
        }
        for part in &message.parts {
            match part {
                Part::ToolUse { id, .. } => unanswered.push(id),
                Part::ToolResult { id, .. } => {
                    match unanswered.iter().position(|call| call == id) {
                        Some(index) => drop(unanswered.remove(index)),
                        None => return false,
                    }
                }
                _ => {}
            }
        }
    }
    unanswered.is_empty()
}

/// Checks the manifest's entries of a single message: the context's messages list its id if the
/// entry reports it as sent, and do not list it if the entry reports it as dropped. Also checks
/// that the system prompt comes first.
pub(crate) fn check_message_ids(context: &Context) -> Result<(), String> {
    let listed: HashSet<MessageId> = context
        .messages
        .iter()
        .flat_map(|message| &message.message_ids)
        .copied()
        .collect();
    for entry in context
        .manifest
        .iter()
        .filter(|entry| entry.first == entry.last)
    {
        let is_sent = match entry.representation {
            Representation::Original | Representation::Summary | Representation::Clipped => true,
            Representation::Dropped | Representation::Withdrawn => false,
            _ => continue,
        };
        if listed.contains(&entry.first) != is_sent {
            return Err(format!("{entry:?}"));
        }
    }
    let prompt = context
        .messages
        .iter()
        .position(|message| message.segment == Segment::SystemPrompt);
    if prompt.is_some_and(|index| index > 0) {
        Err("the system prompt is not the first message".into())
    } else {
        Ok(())
    }
}

/// Whether every call of the rendered request has exactly one result, directly after it, and there
/// are no other results. Gemini's results must also come in the order of the calls.
pub(crate) fn rendered_is_paired(rendered: &Value, format: Format) -> bool {
    let messages = rendered
        .get("messages")
        .or_else(|| rendered.get("contents"))
        .and_then(Value::as_array);
    let mut unanswered: Vec<&str> = Vec::new();
    for message in messages.into_iter().flatten() {
        let (calls, results) = calls_and_results(message, format);
        for result in results {
            let Some(index) = unanswered.iter().position(|call| *call == result) else {
                return false;
            };
            if format == Format::GeminiContents && index > 0 {
                return false;
            }
            unanswered.remove(index);
        }
        let more_results_may_follow = format == Format::OpenAiChat && message["role"] == "tool";
        if !unanswered.is_empty() && !more_results_may_follow {
            return false;
        }
        unanswered.extend(calls);
    }
    unanswered.is_empty()
}

fn calls_and_results(message: &Value, format: Format) -> (Vec<&str>, Vec<&str>) {
    let all = |list: &'static str, path: &'static str| -> Vec<&str> {
        let entries = message
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        entries
            .filter_map(|entry| entry.pointer(path).and_then(Value::as_str))
            .collect()
    };
    match format {
        Format::Neutral => (Vec::new(), Vec::new()),
        Format::OpenAiChat => (
            all("tool_calls", "/id"),
            message["tool_call_id"].as_str().into_iter().collect(),
        ),
        Format::AnthropicMessages => (all("content", "/id"), all("content", "/tool_use_id")),
        Format::GeminiContents => (
            all("parts", "/functionCall/name"),
            all("parts", "/functionResponse/name"),
        ),
    }
}

/// The provider's reasons to refuse the request.
pub(crate) fn refusals(rendered: &Value, format: Format) -> Vec<String> {
    let refusals = match format {
        Format::Neutral => Vec::new(),
        Format::OpenAiChat => anneal_shapes::openai_chat(rendered),
        Format::AnthropicMessages => anneal_shapes::anthropic_messages(rendered),
        Format::GeminiContents => anneal_shapes::gemini_contents(rendered),
    };
    refusals.iter().map(ToString::to_string).collect()
}
