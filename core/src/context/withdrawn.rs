//! Withdrawn messages after the boundary. The manifest names them; nothing else of a context does.

use super::{ManifestEntry, Reason, Representation};
use crate::{message::MessageId, tokens::Tokens};

/// Adds the withdrawn messages after the boundary to a manifest, in id order. Adjacent ones are one
/// entry.
pub(super) fn add_to_manifest(
    manifest: &mut Vec<ManifestEntry>,
    withdrawn: &[MessageId],
    boundary: MessageId,
) {
    if withdrawn.is_empty() {
        return;
    }
    // A summary that was made for this call may have moved the boundary.
    let after_boundary = withdrawn.iter().copied().filter(|id| *id > boundary);
    let mut runs: Vec<(MessageId, MessageId)> = Vec::new();
    for id in after_boundary {
        match runs.last_mut() {
            Some((_, last)) if last.next() == id => *last = id,
            _ => runs.push((id, id)),
        }
    }
    manifest.extend(runs.into_iter().map(|(first, last)| ManifestEntry {
        first,
        last,
        representation: Representation::Withdrawn,
        reason: Reason::Withdrawn,
        tokens: Tokens::ZERO,
        original_tokens: Tokens::ZERO,
        cool: false,
        clipped: Vec::new(),
    }));
    manifest.sort_by_key(|entry| entry.first);
}
