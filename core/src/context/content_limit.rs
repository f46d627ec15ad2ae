//! Messages that one context does not read because newer ones fill its content limit
//! (`CONTEXT_CONTENT_BYTES`). The store decides where reading ends. This module also omits the rest
//! of a turn or exchange that this end splits, as a budget would drop it.

use super::{ManifestEntry, Material, OmittedMessage, Reason, Representation, TailMessage};
use crate::{
    message::{MessageId, Role},
    tokens::Tokens,
};

/// Omits the rest of a partly read turn that is older than the newest user message's turn. In the
/// newest turn it omits results whose calls were omitted.
pub(super) fn omit_partial_turns(material: &mut Material) {
    let Some(last_omitted) = material.omitted.last().map(|message| message.id) else {
        return;
    };
    let user = material
        .tail
        .iter()
        .rfind(|message| message.role == Role::User);
    let newest = user.map_or(material.turn, |message| message.turn);
    let split_turn = material
        .omitted
        .iter()
        .rev()
        .map(|message| message.turn)
        .find(|turn| *turn < newest);
    let after_omitted = material
        .tail
        .iter()
        .skip_while(|message| message.id < last_omitted);
    let last_orphan = after_omitted
        .take_while(|message| message.role == Role::Tool)
        .last()
        .map(|message| message.id);
    let is_omitted = |message: &TailMessage| {
        Some(message.turn) == split_turn
            || (message.id > last_omitted && last_orphan.is_some_and(|last| message.id <= last))
    };
    let (omitted, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut material.tail)
        .into_iter()
        .partition(is_omitted);
    material.tail = kept;
    let omitted = omitted.into_iter().map(
        |TailMessage {
             id, turn, tokens, ..
         }| OmittedMessage { id, turn, tokens },
    );
    material.omitted.extend(omitted);
    material.omitted.sort_unstable_by_key(|message| message.id);
}

/// Adds the omitted messages to a manifest, in id order.
pub(super) fn add_to_manifest(manifest: &mut Vec<ManifestEntry>, omitted: &[OmittedMessage]) {
    if omitted.is_empty() {
        return;
    }
    manifest.extend(omitted.iter().map(|message| ManifestEntry {
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

/// The runs of `first` to `last` between omitted messages. An emergency summary covers only
/// messages that were read.
pub(super) fn runs_between(
    first: MessageId,
    last: MessageId,
    omitted: &[OmittedMessage],
) -> Vec<(MessageId, MessageId)> {
    let mut runs = Vec::new();
    let mut start = first;
    for message in omitted
        .iter()
        .filter(|message| (first..=last).contains(&message.id))
    {
        runs.push((start, MessageId(message.id.0 - 1)));
        start = message.id.next();
    }
    runs.push((start, last));
    runs.retain(|(first, last)| first <= last);
    runs
}
