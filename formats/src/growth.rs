//! Messages of a file that is still written to.

use anneal_core::message::Message;

use crate::{Format, claw0};

/// What a message has got since its first `parts` parts were read, as a message of its own. None where messages of this
/// format are whole when they are there, as they are in all but claw0's logs: there a call or a result is a record of its
/// own, and joins the message before it.
pub fn grown(format: Format, message: Message, parts: usize) -> Option<Message> {
    match format {
        Format::Claw0 => claw0::grown(message, parts),
        Format::OpenAi | Format::Anthropic | Format::Pi | Format::ShareGpt | Format::ZeroClaw => None,
    }
}
