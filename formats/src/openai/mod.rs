//! OpenAI chat messages, and the files of agents that use them: SWE-agent's `history`, tau-bench's
//! `traj`.

mod read;
mod write;

use anneal_core::message::Message;

use crate::{
    Format,
    json::{Fields, Notes, Unreadable},
    message_list::{Dialect, Prompt},
};

/// The OpenAI format as a [`Dialect`] of message lists.
pub(crate) struct OpenAi;

impl Dialect for OpenAi {
    const FORMAT: Format = Format::OpenAi;
    const LISTS: &'static [&'static str] = &["messages", "history", "traj"];
    const FIELDS: &'static [&'static str] = &[
        "role",
        "content",
        "reasoning_content",
        "refusal",
        "tool_calls",
        "function_call",
        "tool_call_id",
        "tool_call_ids",
        "name",
    ];

    fn identifies_message(name: &str) -> bool {
        name == "role"
    }

    fn parse_messages(
        &mut self,
        record: &Fields,
        notes: &mut Notes,
    ) -> Result<Vec<Message>, Unreadable> {
        read::message(record, notes).map(|message| vec![message])
    }

    fn records(&mut self, message: &Message) -> Vec<String> {
        write::records(message)
    }

    fn prompt(&self, prompt: &str) -> Prompt {
        Prompt::Record(write::prompt(prompt))
    }
}
