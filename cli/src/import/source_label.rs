//! Labels a conversation that is identified only by its file name with the path of the file,
//! because several people may have a `main.jsonl`.

use std::path::Path;

use anneal_core::{
    digest,
    limits::{METADATA_BYTES, METADATA_KEYS},
};
use anneal_proto::v1 as pb;

use super::digest_prefix::hex;

/// The name of the label.
const LABEL: &str = "anneal.import.source";

/// The label value for a path: a digest, because a path may contain personal data.
pub(super) fn label_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(hex(&digest::of_content(&path.to_string_lossy())))
}

/// Whether messages were imported into the conversation from another file.
pub(super) fn is_other_file(conversation: &pb::Conversation, origin: &str) -> bool {
    conversation.message_count > 0
        && conversation
            .metadata
            .get(LABEL)
            .is_some_and(|known| known != origin)
}

/// The conversation with the label. Added if the conversation is empty and the label fits, or if it
/// has one.
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
