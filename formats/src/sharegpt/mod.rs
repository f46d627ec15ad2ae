//! ShareGPT: `conversations` of `from` and `value`. Calls have no ids there; they are numbered.

mod read;
mod write;

use std::collections::VecDeque;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Bad, Fields, Notes},
    talks::{Dialect, Prompt},
};

/// ShareGPT's messages.
#[derive(Default)]
pub(crate) struct ShareGpt {
    /// Calls of the conversation so far.
    calls: u64,
    /// Ids of the calls that nothing has answered yet.
    open: VecDeque<String>,
}

/// Most calls that wait for an answer.
const OPEN_CALLS: usize = 1_000;

impl Dialect for ShareGpt {
    const FORMAT: Format = Format::ShareGpt;
    const LISTS: &'static [&'static str] = &["conversations"];
    const FIELDS: &'static [&'static str] = &["from", "value"];

    fn marks_message(name: &str) -> bool {
        name == "from"
    }

    fn begin(&mut self) {
        *self = Self::default();
    }

    fn message(&mut self, record: &Fields, notes: &mut Notes) -> Result<Vec<Message>, Bad> {
        self.read(record, notes).map(|message| vec![message])
    }

    fn records(&mut self, message: &Message) -> Vec<String> {
        write::records(message)
    }

    fn prompt(&self, prompt: &str) -> Prompt {
        Prompt::Record(write::record("system", prompt))
    }
}
