//! The columns of a message's content that do not depend on its conversation.

use anneal_core::{
    digest::{self, Digest},
    message::{self, Message},
};

use crate::rows::{json, large_json};

/// A longer text is measured before its JSON is written.
const LARGE_TEXT_BYTES: usize = 64 * 1024;

/// Columns of a message, as they are stored.
#[derive(Debug, Clone)]
pub(crate) struct MessageColumns {
    /// Bytes of the plain text.
    pub(crate) text_bytes: i64,
    /// The parts as JSON.
    pub(crate) content: String,
    pub(crate) content_digest: Digest,
    /// Tool calls and results as JSON. None: it has none.
    pub(crate) outline: Option<String>,
    /// The caller's labels as JSON. None: it has none.
    pub(crate) metadata: Option<String>,
}

impl MessageColumns {
    /// The columns of this message.
    pub(crate) fn of(message: &Message) -> Self {
        let text_bytes = message::plain_text_bytes(&message.parts);
        let content = if text_bytes > LARGE_TEXT_BYTES {
            large_json(&message.parts)
        } else {
            json(&message.parts)
        };
        let outline = message.tool_outline();
        Self {
            text_bytes: text_bytes as i64,
            content_digest: digest::of_content(&content),
            content,
            outline: (!outline.is_empty()).then(|| json(&outline)),
            metadata: (!message.metadata.is_empty()).then(|| json(&message.metadata)),
        }
    }
}
