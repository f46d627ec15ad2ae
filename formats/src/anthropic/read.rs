//! Reads Anthropic messages.

use anneal_core::message::{Message, Role};

use crate::{
    blocks,
    json::{Fields, Notes, Unreadable, short_name},
};

/// The messages of a record: one, or two if a user message has tool results and other parts.
pub(super) fn messages(record: &Fields, notes: &mut Notes) -> Result<Vec<Message>, Unreadable> {
    let role = match record.required_text("role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => return Err(Unreadable(format!("unknown role {}", short_name(other)))),
    };
    let content = record
        .raw("content")
        .ok_or_else(|| Unreadable::new("it needs a field `content`"))?;
    let parts = blocks::parse_content(content, notes)?;
    Ok(blocks::split_tool_results(role, parts, notes))
}
