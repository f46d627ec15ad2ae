//! Messages that one context does not read because newer ones fill its content limit
//! (`CONTEXT_CONTENT_BYTES`). The store reads the newest messages and decides where to stop. If it
//! stops within a turn, or between a call and its result, this module omits the rest of that turn
//! or the result as well, as a budget would drop them.

use super::{ManifestEntry, Material, OmittedMessage, Reason, Representation, TailMessage};
use crate::{
    message::{MessageId, Role},
    tokens::Tokens,
};

/// Omits the rest of a turn that the store read in part, unless it is the turn of the newest user
/// message. Of that turn only the results of omitted calls are omitted.
pub(super) fn omit_partial_turns(material: &mut Material) {
    let Some(last_omitted) = material.omitted.last().map(|message| message.id) else {
        return;
    };
    let user = material
        .tail
        .iter()
        .rfind(|message| message.role == Role::User);
    let newest_user_turn = user.map_or(material.turn, |message| message.turn);
    let split_turn = material
        .omitted
        .iter()
        .rev()
        .map(|message| message.turn)
        .find(|turn| *turn < newest_user_turn);
    // Results directly after the omitted messages answer calls that were omitted. Only the newest
    // user message may come before omitted ones, because the store always reads it.
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

/// The messages from `first` to `last` without the omitted ones, as ranges of ids. An emergency
/// summary covers only messages that were read.
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
