//! The formats that store a conversation as a list of messages: a list, an object around a list, or
//! lines of either.
//!
//! - `read`: which values are conversations and which are messages.
//! - `outline`: the fields of an object and the position of its list.
//! - `write`: a conversation per line.

mod outline;
mod read;
mod write;

use outline::first_element_matches;
pub(crate) use outline::outline;
pub(crate) use read::read;
pub(crate) use write::MessageListWriter;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Fields, Notes, Unreadable},
};

/// The differences between these formats.
pub(crate) trait Dialect {
    const FORMAT: Format;
    /// The names of the field that holds the messages. The first one is written.
    const LISTS: &'static [&'static str];
    /// The fields of a message that are read.
    const FIELDS: &'static [&'static str];

    /// Whether an object with a field of this name is a message.
    fn marks_message(name: &str) -> bool;

    /// Called at the start of each conversation.
    fn reset(&mut self) {}

    /// The messages that the format's own fields of a record yield: one, or two.
    fn message(&mut self, record: &Fields, notes: &mut Notes) -> Result<Vec<Message>, Unreadable>;

    /// The system prompt beside the list; empty if there is none.
    fn system(&self, _conversation: &Fields, _notes: &mut Notes) -> Result<String, Unreadable> {
        Ok(String::new())
    }

    /// The message as records of the format, each a JSON object. What the format cannot express is
    /// left out.
    fn records(&mut self, message: &Message) -> Vec<String>;

    /// The system prompt, as a field beside the list or as the first record.
    fn prompt(&self, prompt: &str) -> Prompt;
}

/// Where a format stores the system prompt.
pub(crate) enum Prompt {
    /// A field of the object around the list.
    Field(String),
    /// The first record of the list.
    Record(String),
}
