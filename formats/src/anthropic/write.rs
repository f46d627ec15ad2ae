//! Writes Anthropic messages.

use anneal_core::message::{Message, Role};

use crate::blocks;

/// The message as a record. Anthropic has only the roles user and assistant: the other roles become
/// user.
pub(super) fn record(message: &Message) -> String {
    let role = if message.role == Role::Assistant {
        "assistant"
    } else {
        "user"
    };
    format!(
        "{{\"role\":\"{role}\",\"content\":{}}}",
        blocks::content_json(&message.parts)
    )
}
