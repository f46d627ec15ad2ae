//! What one context does not read: messages behind those that hold as much as it reads. The store says where they end; here
//! turns and exchanges that this parts are left out whole, as a budget drops them.

use super::{LeftOut, ManifestEntry, Material, Reason, Representation, TailMessage};
use crate::{
    message::{MessageId, Role},
    tokens::Tokens,
};

/// Leaves out what is left of a turn older than the newest user message's, and of the newest turn the results of calls that
/// were left out.
pub(super) fn round(material: &mut Material) {
    let Some(end) = material.left_out.last().map(|message| message.id) else { return };
    let user = material.tail.iter().rfind(|message| message.role == Role::User);
    let newest = user.map_or(material.turn, |message| message.turn);
    let parted = material.left_out.iter().rev().map(|message| message.turn).find(|turn| *turn < newest);
    let behind = material.tail.iter().skip_while(|message| message.id < end);
    let orphaned = behind.take_while(|message| message.role == Role::Tool).last().map(|message| message.id);
    let goes = |message: &TailMessage| {
        Some(message.turn) == parted || (message.id > end && orphaned.is_some_and(|last| message.id <= last))
    };
    let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut material.tail).into_iter().partition(goes);
    material.tail = kept;
    let gone = gone.into_iter().map(|TailMessage { id, turn, tokens, .. }| LeftOut { id, turn, tokens });
    material.left_out.extend(gone);
    material.left_out.sort_unstable_by_key(|message| message.id);
}

/// Puts what was left out into its places in a manifest.
pub(super) fn note(manifest: &mut Vec<ManifestEntry>, left_out: &[LeftOut]) {
    if left_out.is_empty() {
        return;
    }
    manifest.extend(left_out.iter().map(|message| ManifestEntry {
        first: message.id,
        last: message.id,
        representation: Representation::Dropped,
        reason: Reason::ContentLimit,
        tokens: Tokens::ZERO,
        original_tokens: message.tokens,
        cool: false,
        clipped: Vec::new(),
    }));
    manifest.sort_by_key(|entry| entry.first);
}

/// The runs of `first` to `last` between what was left out: a summary that is made for one answer covers what was read alone.
pub(super) fn runs_between(first: MessageId, last: MessageId, left_out: &[LeftOut]) -> Vec<(MessageId, MessageId)> {
    let mut runs = Vec::new();
    let mut start = first;
    for message in left_out.iter().filter(|message| (first..=last).contains(&message.id)) {
        runs.push((start, MessageId(message.id.0 - 1)));
        start = message.id.next();
    }
    runs.push((start, last));
    runs.retain(|(first, last)| first <= last);
    runs
}
