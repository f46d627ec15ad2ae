//! Writes ShareGPT messages.

use anneal_core::message::{Message, Part, Role};

use crate::json::{object, quoted};

/// The records of a message: one for its texts, and one per tool call and tool result.
pub(super) fn records(message: &Message) -> Vec<String> {
    let mut records = Vec::new();
    let texts: Vec<&str> = message.parts.iter().filter_map(text).collect();
    let has_tools = message
        .parts
        .iter()
        .any(|part| matches!(part, Part::ToolUse { .. } | Part::ToolResult { .. }));
    if !texts.is_empty() || !has_tools {
        records.push(record(sender(message.role), &texts.join("\n\n")));
    }
    for part in &message.parts {
        match part {
            Part::ToolUse { name, input, .. } => {
                let call = format!(
                    "{{\"name\":{},\"arguments\":{}}}",
                    quoted(name),
                    object(input).get()
                );
                records.push(record("function_call", &call));
            }
            Part::ToolResult { text, .. } => records.push(record("observation", text)),
            Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => {}
        }
    }
    records
}

pub(super) fn record(from: &str, value: &str) -> String {
    format!("{{\"from\":\"{from}\",\"value\":{}}}", quoted(value))
}

fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text } => Some(text),
        _ => None,
    }
}

const fn sender(role: Role) -> &'static str {
    match role {
        Role::User => "human",
        Role::Assistant => "gpt",
        Role::Tool => "observation",
        Role::System => "system",
    }
}
