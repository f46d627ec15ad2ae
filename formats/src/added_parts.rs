//! Parts that a file adds to a message while it is still being written.

use anneal_core::message::Message;

use crate::{Format, claw0};

/// The parts that were added to a message after its first `stored_parts`, as a message of their
/// own. Only claw0 adds parts: each tool call and each tool result is a record of its own in its
/// log, and becomes a part of the message before it. For the other formats, which write a message
/// in one piece, this is None.
pub fn added_parts(format: Format, message: Message, stored_parts: usize) -> Option<Message> {
    match format {
        Format::Claw0 => claw0::added_parts(message, stored_parts),
        Format::OpenAi | Format::Anthropic | Format::Pi | Format::ShareGpt | Format::ZeroClaw => {
            None
        }
    }
}
