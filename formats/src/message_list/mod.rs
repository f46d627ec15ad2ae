//! The formats that store a conversation as a list of messages: a list, an object around a list, or
//! lines of either.
//!
//! - `read`: which values are conversations and which are messages.
//! - `outline`: the fields of an object, and the position of its list of messages.
//! - `write`: one line for each conversation.

mod outline;
mod read;
mod write;

use outline::first_element_matches;
pub(crate) use outline::read_outline;
pub(crate) use read::read;
pub(crate) use write::MessageListWriter;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Fields, Notes, Unreadable},
};

/// How one of these formats differs from the others.
pub(crate) trait Dialect {
    const FORMAT: Format;
    /// The names that the field with the messages may have. The first one is used for writing.
    const LISTS: &'static [&'static str];
    /// The fields of a message that are read.
    const FIELDS: &'static [&'static str];

    /// Whether an object is a message if it has a field of this name.
    fn identifies_message(name: &str) -> bool;

    /// Called at the start of each conversation.
    fn reset(&mut self) {}

    /// Parses a record's own fields, without the object `anneal`. Yields one message or two.
    fn parse_messages(
        &mut self,
        record: &Fields,
        notes: &mut Notes,
    ) -> Result<Vec<Message>, Unreadable>;

    /// Parses the system prompt in the fields beside the list; empty if there is none.
    fn parse_system_prompt(
        &self,
        conversation: &Fields,
        _notes: &mut Notes,
    ) -> Result<String, Unreadable> {
        Ok(conversation.text("system")?.unwrap_or_default())
    }

    /// The records to write for a message, each a JSON object. What the format cannot express is
    /// left out.
    fn records(&mut self, message: &Message) -> Vec<String>;

    /// The system prompt to write, as a field beside the list or as the first record.
    fn prompt(&self, prompt: &str) -> Prompt;
}

/// Where a format stores the system prompt.
pub(crate) enum Prompt {
    /// A field of the object around the list.
    Field(String),
    /// The first record of the list.
    Record(String),
}
