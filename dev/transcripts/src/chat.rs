//! A conversation, and functions that construct and parse its messages.

use std::collections::HashMap;

use anneal_core::message::Message;
use anneal_proto::convert::message::{self, text_message};

use crate::pb::{self, part::Part};

/// One conversation of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chat {
    /// A name that no other conversation of its family has.
    pub name: String,
    /// The system prompt. Empty if there is none.
    pub system_prompt: String,
    /// The messages, in order.
    pub messages: Vec<pb::NewMessage>,
}

impl Chat {
    /// This conversation with another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Joins several conversations into one, one after the other, with the system prompt of the
    /// first.
    #[must_use]
    pub fn joined(name: impl Into<String>, chats: &[Self]) -> Self {
        Self {
            name: name.into(),
            system_prompt: chats
                .first()
                .map(|chat| chat.system_prompt.clone())
                .unwrap_or_default(),
            messages: chats
                .iter()
                .flat_map(|chat| chat.messages.iter().cloned())
                .collect(),
        }
    }
}

/// A message with these parts. If there are none, it gets an empty text, like an answer that was
/// interrupted before its first word.
pub fn message(role: pb::Role, mut parts: Vec<Part>) -> pb::NewMessage {
    if parts.is_empty() {
        parts.push(Part::Text(pb::TextPart::default()));
    }
    let parts = parts
        .into_iter()
        .map(|part| pb::Part { part: Some(part) })
        .collect();
    pb::NewMessage {
        role: role.into(),
        parts,
        metadata: HashMap::new(),
    }
}

/// A message with one text.
pub fn text(role: pb::Role, text: &str) -> pb::NewMessage {
    text_message(role, text)
}

/// A tool's result.
pub fn result(id: &str, content: &str) -> pb::NewMessage {
    let part = pb::ToolResultPart {
        tool_use_id: id.into(),
        text: content.into(),
        ..Default::default()
    };
    message(pb::Role::Tool, vec![Part::ToolResult(part)])
}

/// The message as a type of anneal-core, parsed as the server parses it, for tests that use the
/// core without a server.
pub fn parsed(new: &pb::NewMessage) -> Message {
    message::parse("message", new.clone()).expect("readers make only messages that are accepted")
}
