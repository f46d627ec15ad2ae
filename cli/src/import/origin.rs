//! Where a conversation came from that is known by the name of its file alone: two people may each have a `main.jsonl`.

use std::path::Path;

use anneal_core::{
    digest,
    limits::{METADATA_BYTES, METADATA_KEYS},
};
use anneal_proto::v1 as pb;

use super::keys::hex;

/// The label that says it.
const LABEL: &str = "anneal.import.source";

/// A file's place, as a label has it: a digest, for paths tell of people.
pub(super) fn of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(hex(&digest::of_content(&path.to_string_lossy())))
}

/// Whether the conversation was fed from another file before.
pub(super) fn is_another(conversation: &pb::Conversation, origin: &str) -> bool {
    conversation.message_count > 0 && conversation.metadata.get(LABEL).is_some_and(|known| known != origin)
}

/// The conversation with the label, where it is new and there is room, or where it has one.
pub(super) fn labelled(mut conversation: pb::Conversation, origin: &str) -> pb::Conversation {
    let bytes: usize = conversation.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let has_room = conversation.metadata.len() < METADATA_KEYS && bytes + LABEL.len() + origin.len() <= METADATA_BYTES;
    if conversation.metadata.contains_key(LABEL) || (conversation.message_count == 0 && has_room) {
        conversation.metadata.insert(LABEL.to_owned(), origin.to_owned());
    }
    conversation
}
