//! Anthropic messages: content blocks, and `system` beside the messages.

mod read;
mod write;

use anneal_core::message::{Message, plain_text};

use crate::{
    Format, blocks,
    json::{Fields, Notes, Unreadable, quoted},
    message_list::{Dialect, Prompt},
};

/// The Anthropic format as a [`Dialect`] of message lists.
pub(crate) struct Anthropic;

impl Dialect for Anthropic {
    const FORMAT: Format = Format::Anthropic;
    const LISTS: &'static [&'static str] = &["messages"];
    const FIELDS: &'static [&'static str] = &["role", "content"];

    fn identifies_message(name: &str) -> bool {
        name == "role"
    }

    fn parse_messages(
        &mut self,
        record: &Fields,
        notes: &mut Notes,
    ) -> Result<Vec<Message>, Unreadable> {
        read::messages(record, notes)
    }

    fn parse_system_prompt(
        &self,
        conversation: &Fields,
        notes: &mut Notes,
    ) -> Result<String, Unreadable> {
        let blocks = conversation
            .raw("system")
            .map_or_else(|| Ok(Vec::new()), |raw| blocks::parse_content(raw, notes))?;
        Ok(plain_text(&blocks))
    }

    fn records(&mut self, message: &Message) -> Vec<String> {
        vec![write::record(message)]
    }

    fn prompt(&self, prompt: &str) -> Prompt {
        Prompt::Field(format!("\"system\":{}", quoted(prompt)))
    }
}
