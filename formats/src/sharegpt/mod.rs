//! ShareGPT: lists `conversations` of messages with `from` and `value`. Calls have no ids in this
//! format, so the reader numbers them.

mod read;
mod write;

use std::collections::VecDeque;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Fields, Notes, Unreadable},
    message_list::{Dialect, Prompt},
};

/// The ShareGPT format as a [`Dialect`] of message lists.
#[derive(Default)]
pub(crate) struct ShareGpt {
    /// Number of calls in the conversation so far.
    calls: u64,
    /// Ids of the calls that have no result yet.
    open_calls: VecDeque<String>,
}

/// Most calls without a result that are remembered.
const MAX_OPEN_CALLS: usize = 1_000;

impl Dialect for ShareGpt {
    const FORMAT: Format = Format::ShareGpt;
    const LISTS: &'static [&'static str] = &["conversations"];
    const FIELDS: &'static [&'static str] = &["from", "value"];

    fn identifies_message(name: &str) -> bool {
        name == "from"
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn parse_messages(
        &mut self,
        record: &Fields,
        notes: &mut Notes,
    ) -> Result<Vec<Message>, Unreadable> {
        self.parse_message(record, notes)
            .map(|message| vec![message])
    }

    fn records(&mut self, message: &Message) -> Vec<String> {
        write::records(message)
    }

    fn prompt(&self, prompt: &str) -> Prompt {
        Prompt::Record(write::record("system", prompt))
    }
}
