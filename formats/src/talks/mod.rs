//! Formats that keep a conversation as a list of messages: the list alone, an object around it, or lines of either.

mod about;
mod outline;
mod read;
mod write;

pub(crate) use about::{About, SaidSummary};
use outline::elements_are;
pub(crate) use outline::outline;
pub(crate) use read::read;
pub(crate) use write::Lists;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Bad, Fields, Notes},
};

/// What such formats differ in.
pub(crate) trait Dialect {
    /// Which format it is.
    const FORMAT: Format;
    /// The names under which an object may hold its messages; the first one is written.
    const LISTS: &'static [&'static str];
    /// Fields of a message that are read.
    const FIELDS: &'static [&'static str];

    /// Whether an object with a field of this name is a message.
    fn marks_message(name: &str) -> bool;

    /// A conversation begins.
    fn begin(&mut self) {}

    /// The messages that a record says by the format's own fields: one, or two.
    fn message(&mut self, record: &Fields, notes: &mut Notes) -> Result<Vec<Message>, Bad>;

    /// The system prompt that stands beside the list; empty when there is none.
    fn system(&self, _conversation: &Fields, _notes: &mut Notes) -> Result<String, Bad> {
        Ok(String::new())
    }

    /// The records that say a message as well as the format can, each an object.
    fn records(&mut self, message: &Message) -> Vec<String>;

    /// The system prompt as a field beside the list, or as the list's first record.
    fn prompt(&self, prompt: &str) -> Prompt;
}

/// Where a format keeps the system prompt.
pub(crate) enum Prompt {
    /// As a field of the object around the list.
    Field(String),
    /// As the first record.
    Record(String),
}
