//! The label that says from which file a conversation was imported. Only conversations that are
//! identified by their file's name have it, because several people may have a `main.jsonl`.

use std::path::Path;

use anneal_core::{
    digest,
    limits::{METADATA_BYTES, METADATA_KEYS},
};
use anneal_proto::v1 as pb;

use super::digest_prefix::hex_prefix;

/// The name of the label.
const LABEL: &str = "anneal.import.source";

/// The label's value for a path: a digest, because a path may contain personal data. None if the
/// path does not exist.
pub(super) fn label_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(hex_prefix(&digest::of_content(&path.to_string_lossy())))
}

/// Whether messages were imported into the conversation from another file.
pub(super) fn is_other_file(conversation: &pb::Conversation, origin: &str) -> bool {
    conversation.message_count > 0
        && conversation
            .metadata
            .get(LABEL)
            .is_some_and(|known| known != origin)
}

/// The conversation with this value of the label. The label is added only if the conversation has
/// no messages and its metadata has room; an existing label is replaced.
pub(super) fn with_label(mut conversation: pb::Conversation, origin: &str) -> pb::Conversation {
    let bytes: usize = conversation
        .metadata
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let fits = conversation.metadata.len() < METADATA_KEYS
        && bytes + LABEL.len() + origin.len() <= METADATA_BYTES;
    if conversation.metadata.contains_key(LABEL) || (conversation.message_count == 0 && fits) {
        conversation
            .metadata
            .insert(LABEL.to_owned(), origin.to_owned());
    }
    conversation
}
