//! A message as Anthropic writes it.

use anneal_core::message::{Message, Role};

use crate::{
    blocks,
    json::{Bad, Fields, Notes, named},
};

/// The messages of a record.
pub(super) fn messages(record: &Fields, notes: &mut Notes) -> Result<Vec<Message>, Bad> {
    let role = match record.must("role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        other => return Err(Bad(format!("unknown role {}", named(other)))),
    };
    let content = record.raw("content").ok_or_else(|| Bad::new("it needs a content"))?;
    let parts = blocks::content(content, notes)?;
    Ok(blocks::messages(role, parts, notes))
}
