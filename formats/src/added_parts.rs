//! Messages of a file that is still being written.

use anneal_core::message::Message;

use crate::{Format, claw0};

/// The parts that were added to a message after its first `parts` parts, as a message of their own.
/// None for formats whose messages are written in one piece, which are all but claw0: in a claw0
/// log each tool call and each tool result is a record of its own, and joins the message before it.
pub fn added_parts(format: Format, message: Message, parts: usize) -> Option<Message> {
    match format {
        Format::Claw0 => claw0::added_parts(message, parts),
        Format::OpenAi | Format::Anthropic | Format::Pi | Format::ShareGpt | Format::ZeroClaw => {
            None
        }
    }
}
