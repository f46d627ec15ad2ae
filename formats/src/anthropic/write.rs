//! A message as Anthropic takes it.

use anneal_core::message::{Message, Role};

use crate::blocks;

/// The message as a record. Anthropic knows users and assistants only.
pub(super) fn record(message: &Message) -> String {
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    format!("{{\"role\":\"{role}\",\"content\":{}}}", blocks::written(&message.parts))
}
