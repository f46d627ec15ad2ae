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

/// The manifest covers 1 to `last`, each id once, in order.
pub(crate) fn covers_every_id(context: &Context, last: MessageId) -> bool {
    let mut next = MessageId(1);
    let in_order = context.manifest.iter().all(|line| {
        let fits = line.first == next && line.last >= line.first;
        next = line.last.next();
        fits
    });
    in_order && next == last.next()
}

/// Ids of the stored messages that the budget did not drop.
pub(crate) fn kept_ids(context: &Context) -> HashSet<i64> {
    let kept = |line: &&ManifestEntry| line.representation != Representation::Dropped;
    context
        .manifest
        .iter()
        .filter(kept)
        .flat_map(|line| line.first.0..=line.last.0)
        .collect()
}

/// Tokens of the rendered request: its texts and names, inputs, media, and the framing of its
/// messages.
pub(crate) fn recounted(rendered: &Value, context: &Context, format: Format) -> Tokens {
    if format == Format::Neutral {
        let of = |parts: &[Part]| count_parts(ENCODING, parts) + FRAMING_PER_MESSAGE;
        return context
            .messages
            .iter()
            .map(|message| of(&message.parts))
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

/// Collects every string of a request that counts: no types, roles, ids, signatures, addresses and
/// inputs.
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

/// Whether some text of the request contains `beginning`.
pub(crate) fn contains_text(rendered: &Value, beginning: &str) -> bool {
    match rendered {
        Value::String(text) => text.contains(beginning),
        Value::Array(values) => values.iter().any(|value| contains_text(value, beginning)),
        Value::Object(entries) => entries
            .values()
            .any(|value| contains_text(value, beginning)),
        _ => false,
    }
}

/// Whether every call has exactly one result, directly after it, and there are no other results.
pub(crate) fn well_paired(context: &Context) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in &context.messages {
        if message.role != Role::Tool && !open.is_empty() {
            return false;
        }
        for part in &message.parts {
            match part {
                Part::ToolUse { id, .. } => open.push(id),
                Part::ToolResult { id, .. } => match open.iter().position(|call| call == id) {
                    Some(place) => drop(open.remove(place)),
                    None => return false,
                },
                _ => {}
            }
        }
    }
    open.is_empty()
}

/// The ids listed in the messages are those that the manifest reports as shown.
pub(crate) fn agrees_with_itself(context: &Context) -> Result<(), String> {
    let shown: HashSet<MessageId> = context
        .messages
        .iter()
        .flat_map(|message| &message.message_ids)
        .copied()
        .collect();
    for line in context
        .manifest
        .iter()
        .filter(|line| line.first == line.last)
    {
        let wanted = match line.representation {
            Representation::Original | Representation::Summary | Representation::Clipped => true,
            Representation::Dropped => false,
            _ => continue,
        };
        if shown.contains(&line.first) != wanted {
            return Err(format!("{line:?}"));
        }
    }
    let prompt = context
        .messages
        .iter()
        .position(|message| message.segment == Segment::SystemPrompt);
    if prompt.is_some_and(|place| place > 0) {
        Err("the system prompt is not the first".into())
    } else {
        Ok(())
    }
}

/// Whether the same holds in the rendered request.
pub(crate) fn is_paired(rendered: &Value, format: Format) -> bool {
    let messages = rendered
        .get("messages")
        .or_else(|| rendered.get("contents"))
        .and_then(Value::as_array);
    let mut open: Vec<&str> = Vec::new();
    for message in messages.into_iter().flatten() {
        let (calls, results) = calls_and_results(message, format);
        for result in results {
            let Some(place) = open.iter().position(|call| *call == result) else {
                return false;
            };
            if format == Format::GeminiContents && place > 0 {
                return false;
            }
            open.remove(place);
        }
        let waits = format == Format::OpenAiChat && message["role"] == "tool";
        if !open.is_empty() && !waits {
            return false;
        }
        open.extend(calls);
    }
    open.is_empty()
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
